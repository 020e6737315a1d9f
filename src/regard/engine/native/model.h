// A model as the plan describes it, with its weights packed for the kernels.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "weights.h"

namespace regard {

struct Norm {
    enum Kind : int { none, layer, rms } kind = none;
    float eps = 0;
    std::vector<float> weight, bias;
    explicit operator bool() const { return kind != none; }
};

struct Position {
    enum Kind : int { none, rotary, alibi, buckets, shaw } kind = none;
    bool pairs = false;              // rotary: neighbors are rotated together, not the two halves
    int64_t turned = 0, reach = 0;
    float factor = 1;
    std::vector<double> rates;       // rotary
    int64_t rotary_id = 0;           // among the model's different rotations
    std::vector<float> table;        // alibi: slopes; buckets: (distances, heads); shaw: keys (distances, e)
    std::vector<float> values;       // shaw
};

struct Attention {
    int64_t heads = 0, kv_heads = 0, e = 0, reach = 0, dilation = 1;  // reach 0: no window
    bool causal = false;
    float scale = 1;
    Linear read;         // mix: queries, keys and values in one product; cross: queries
    Linear memory;       // cross: keys and values of the memory
    Linear out;
    Norm q_norm, k_norm;
    Position position;
    int64_t q_width() const { return heads * e; }
    int64_t kv_width() const { return kv_heads * e; }
};

struct Feed {
    int64_t width = 0;
    Activation activation = Activation::relu;
    bool gated = false;
    Linear up, down;     // up: with a gate, (up, gate) in one product
};

struct Part {
    enum Role : int { mix, cross, feed } role = mix;
    Norm norm;
    Attention attention;
    Feed feed_forward;
    int64_t slot = -1;   // which of the stack's keys and values (mix), or of the memories (cross), are its own
};

struct Stack {
    enum Wiring : int { post, pre, parallel, bare } wiring = post;
    std::vector<std::vector<std::unique_ptr<Part>>> blocks;
    Norm norm;
    int64_t mixes = 0, crosses = 0;
};

struct Embedding {
    enum Place : int { none, pairs, halves, learned } place = none;
    Stored table;
    const Matrix* packed = nullptr;  // the same as the head's floats, if it has the same weights
    float scale = 1;
    int64_t zero = -1;  // a token whose vector is always zero
    int64_t shift = 0;
    Stored places;
    std::vector<float> segment;
    Norm norm;
};

// Tokens that an output may contain: of each source token, and of every source. None: the whole vocabulary.
struct Shortlist {
    std::vector<int64_t> starts;  // of source token i: ids[starts[i] … starts[i + 1])
    std::vector<int32_t> ids, always;
    explicit operator bool() const { return !starts.empty(); }
};

constexpr int64_t PAGE = 8;  // tokens whose keys and values are allocated together, layer by layer

struct Model {
    int64_t width = 0, vocab = 0, source_vocab = 0;
    bool has_encoder = false, has_decoder = true;
    Embedding embed, source;
    Stack encoder, decoder;
    Linear head;
    float head_scale = 1;
    Shortlist shortlist;
    const Kernels* kernels = nullptr;
    int64_t bytes = 0;                      // of all packed weights
    int64_t slot = 0;                       // floats of the keys and values that one token leaves in one layer
    int64_t slot_offset(int64_t mix) const { return mix * PAGE * slot; }
    std::vector<const Position*> rotaries;
    int64_t room(bool of_source) const;     // positions that the embedding has; -1: any number
};

// Reads a plan (see engine_plan.py for its order), checks every number and every size, then packs the weights. `mapped`: they are a
// private map of a file, and what was packed elsewhere need not stay in memory.
std::unique_ptr<Model> read_model(const double* plan, int64_t words, const unsigned char* weights, int64_t bytes,
                                  bool mapped, Precision precision, const Kernels* kernels);

}  // namespace regard
