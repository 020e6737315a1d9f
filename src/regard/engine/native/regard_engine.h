// The C interface of the engine. Every function that can fail returns null or a negative number and writes one line to `error`.
// Memory that a call returns belongs to the caller until `regard_free_…`.
#pragma once
#include <stdint.h>

#define REGARD_ABI 3

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

// Token ids behind one another; row i is ids[starts[i] … starts[i + 1]).
typedef struct {
    int64_t count;
    const int32_t* ids;
    const int64_t* starts;
} regard_texts;

typedef struct {
    int64_t count;             // inputs, or (regard_step) sequences that wrote something
    const int64_t* outputs;    // hypotheses of each input; of a sequence that is not over, -1
    const int64_t* lengths;    // of each hypothesis
    const int32_t* tokens;     // of all hypotheses
    const double* log_probs;   // of each hypothesis, or (regard_score) of each token
    const double* scores;
    const int64_t* sequences;  // regard_step: the number of each sequence
    const int32_t* written;    // regard_step: the token that it wrote; -1: none (an end mark, or a beam, which may still change)
} regard_found;

#define REGARD_API __attribute__((visibility("default")))

REGARD_API int regard_abi(void);
// The kernels that were compiled in: name i, or null at the end. `supported`: whether this processor runs them.
REGARD_API const char* regard_kernels(int i, int* supported);

// `plan` is laid out as engine_plan.py says; `weights` is the file it refers to, which must stay in memory as long as the model;
// `mapped`: as a private map that nobody writes to, parts of which the library may let go.
// precision 0: float32; 1: int8 with a scale per row; 2: blocks of 32, of 4 bits where they are stored so, otherwise of 8.
// The kernels are named, or "auto".
REGARD_API regard_model* regard_load(const double* plan, int64_t words, const void* weights, int64_t bytes, int mapped, int precision,
                          int threads, const char* kernels, char* error, int64_t error_size);
// Whether some of `count` numbers from byte `start` on are not numbers (NaN); dtype as in a plan: 0 float32, 1 float16, 2 bfloat16.
REGARD_API int regard_has_nan(const void* data, int64_t bytes, int64_t start, int64_t count, int dtype);
REGARD_API void regard_free_model(regard_model* model);
REGARD_API int64_t regard_model_bytes(const regard_model* model);
REGARD_API const char* regard_model_kernels(const regard_model* model);

// Lets outputs contain only `candidates` of the tokens of their source (text i: those of source token i) and what may be in any
// output (`always`, one text). No candidates: the whole vocabulary again. Not while the model is used; 0: refused.
REGARD_API int regard_set_shortlist(regard_model* model, const regard_texts* candidates, const regard_texts* always, char* error,
                                    int64_t error_size);

// Decodes all sources. `prefixes` may have no texts; `limits` has the maximum number of tokens of each output and `numbers`
// what its random numbers are drawn by.
REGARD_API regard_found* regard_decode(regard_model* model, const regard_texts* sources, const regard_texts* prefixes,
                            const int64_t* limits, const int64_t* numbers, const int32_t* banned, int64_t n_banned,
                            const regard_search* search, char* error, int64_t error_size);

// Sequences that are decoded together, one step at a time. They join and leave between steps; what one gives does not depend on
// the others. `regard_add` and `regard_remove` may be called while another thread is in `regard_step`. A batch is closed before
// its model is freed.
REGARD_API regard_batch* regard_open_batch(regard_model* model, char* error, int64_t error_size);
// The number of a new sequence, which joins with the next step; -1: refused. `source` has one text, `prefix` one or none.
REGARD_API int64_t regard_add(regard_batch* batch, const regard_texts* source, const regard_texts* prefix, int64_t limit,
                              int64_t number, const int32_t* banned, int64_t n_banned, const regard_search* search, char* error,
                              int64_t error_size);
// Whether there was such a sequence; it gives nothing more. -1: all of them.
REGARD_API int regard_remove(regard_batch* batch, int64_t sequence);
// Reads some of what is new, and writes one token of each sequence that is read. A sequence that is over leaves by itself.
REGARD_API regard_found* regard_step(regard_batch* batch, char* error, int64_t error_size);
REGARD_API int64_t regard_batch_size(regard_batch* batch);
REGARD_API void regard_close_batch(regard_batch* batch);

// The log-probability of each token of each target after its source.
REGARD_API regard_found* regard_score(regard_model* model, const regard_texts* sources, const regard_texts* targets, int64_t bos,
                           char* error, int64_t error_size);
// The encoder's output of each token of each source into `out`, which has `size` floats; returns how many were written.
REGARD_API int64_t regard_encode(regard_model* model, const regard_texts* sources, float* out, int64_t size, char* error,
                                 int64_t error_size);
REGARD_API void regard_free_found(regard_found* found);

#ifdef __cplusplus
}
#endif
