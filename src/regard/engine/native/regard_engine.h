// The C interface of the engine. A function that fails returns null, 0 or -1 as noted, and writes one line to `error`.
// The caller frees what a call returns, with `regard_free_…`.
#pragma once
#include <stdint.h>

#define REGARD_ABI 7

#ifdef __cplusplus
extern "C" {
#endif

typedef struct regard_model regard_model;
typedef struct regard_batch regard_batch;

typedef struct {
    int64_t beam, n_best, penalty, sample, top_k, first_step, repetition_guard, bos, eos;
    uint64_t seed;
    double alpha, temperature, top_p, min_p;
} regard_search;

// Rows of token ids in one array; row i is ids[starts[i] … starts[i + 1]).
typedef struct {
    int64_t count;
    const int32_t* ids;
    const int64_t* starts;
} regard_texts;

// Flags that another thread sets to something else than 0 to end a call, which then fails at once: within a part of one layer.
// Whatever takes a `stop` also takes null.
typedef struct {
    int64_t count;
    const int32_t* const* flags;
} regard_stop;

typedef struct {
    int64_t count;             // of inputs, or (regard_step) of sequences that took part in the step
    const int64_t* outputs;    // number of hypotheses of each input; -1: the sequence is still running
    const int64_t* lengths;    // of each hypothesis
    const int32_t* tokens;     // of all hypotheses
    const double* log_probs;   // of each hypothesis, or (regard_score) of each token
    const double* scores;
    const int64_t* sequences;  // regard_step: the number of each sequence
    const int32_t* written;    // regard_step: the token that it wrote; -1: it ended, or is a beam, whose tokens may still change
} regard_found;

#define REGARD_API __attribute__((visibility("default")))

REGARD_API int regard_abi(void);
// The name of the i-th set of kernels in the library, or null after the last; `supported`: whether this processor runs them.
REGARD_API const char* regard_kernels(int i, int* supported);

// plan       numbers in the order of engine_plan.py
// weights    the weights file, which must stay in memory as long as the model
// mapped     the weights are in anonymous pages of their own, of which the library releases those that it will not read again
// precision  0: float32; 1: int8 with a scale per row; 2: blocks of 32 weights, 4 bits where stored that way, otherwise 8
// kernels    a name, or "auto"
REGARD_API regard_model* regard_load(const double* plan, int64_t words, const void* weights, int64_t bytes, int mapped, int precision,
                          int threads, const char* kernels, char* error, int64_t error_size);
// Whether any of the `count` numbers from byte `start` on is NaN; dtype 0: float32, 1: float16, 2: bfloat16.
REGARD_API int regard_has_nan(const void* data, int64_t bytes, int64_t start, int64_t count, int dtype);
REGARD_API void regard_free_model(regard_model* model);
// To be called in a child process after a fork, before anything else uses the model there: its threads are not in the child.
REGARD_API void regard_restart(regard_model* model);
REGARD_API int64_t regard_model_bytes(const regard_model* model);
REGARD_API const char* regard_model_kernels(const regard_model* model);

// Limits outputs to the candidates of their source tokens (row i of `candidates` is for source token i) and to the tokens that
// any output may contain (`always`). No candidates: the whole vocabulary again. Must not be called while the model is in use.
// Returns 0 if it is refused.
REGARD_API int regard_set_shortlist(regard_model* model, const regard_texts* candidates, const regard_texts* always, char* error,
                                    int64_t error_size);

// Decodes all sources. `prefixes` has a row per source, or none; `limits` has the maximum number of tokens of each output, and
// `numbers` selects the random numbers of each.
REGARD_API regard_found* regard_decode(regard_model* model, const regard_texts* sources, const regard_texts* prefixes,
                            const int64_t* limits, const int64_t* numbers, const int32_t* banned, int64_t n_banned,
                            const regard_search* search, const regard_stop* stop, char* error, int64_t error_size);

// Continuous batching: sequences are decoded together, one step at a time, and join and leave between steps. The output of a
// sequence does not depend on the others. `regard_add` and `regard_remove` may be called while another thread is in
// `regard_step`. Close a batch before its model is freed.
REGARD_API regard_batch* regard_open_batch(regard_model* model, char* error, int64_t error_size);
// Adds a sequence, which joins at the next step; returns its number, or -1. `source` has one row, `prefix` one or none.
REGARD_API int64_t regard_add(regard_batch* batch, const regard_texts* source, const regard_texts* prefix, int64_t limit,
                              int64_t number, const int32_t* banned, int64_t n_banned, const regard_search* search, char* error,
                              int64_t error_size);
// Removes a sequence, or all (-1); returns whether there was one. It appears in no later step.
REGARD_API int regard_remove(regard_batch* batch, int64_t sequence);
// Reads some of the new sources, then writes one token of each sequence that is read. Finished sequences leave by themselves.
// After a step that was stopped the batch goes on, and the next step tells what that one did; after another error it is lost.
REGARD_API regard_found* regard_step(regard_batch* batch, const regard_stop* stop, char* error, int64_t error_size);
REGARD_API int64_t regard_batch_size(regard_batch* batch);
// The tokens that the next step reads and writes, at most; only for the thread that takes steps.
REGARD_API int64_t regard_batch_tokens(regard_batch* batch);
// Bytes of the key-value cache: of the tokens in it, and of memory that is kept for later ones.
REGARD_API int64_t regard_batch_bytes(regard_batch* batch);
REGARD_API void regard_close_batch(regard_batch* batch);

// The log-probability of each token of each target after its source.
REGARD_API regard_found* regard_score(regard_model* model, const regard_texts* sources, const regard_texts* targets, int64_t bos,
                           const regard_stop* stop, char* error, int64_t error_size);
// Writes the encoder's output for each token of each source to `out`, which has `size` floats; returns how many it wrote.
REGARD_API int64_t regard_encode(regard_model* model, const regard_texts* sources, float* out, int64_t size,
                                 const regard_stop* stop, char* error, int64_t error_size);
REGARD_API void regard_free_found(regard_found* found);

#ifdef __cplusplus
}
#endif
