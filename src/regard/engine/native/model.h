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
    bool pairs = false;              // rotary: pairs are neighbors, not i and i + half
    int64_t turned = 0, reach = 0;
    float factor = 1;
    std::vector<double> rates;       // rotary
    int64_t rotary_id = 0;           // index of its table of angles; layers that rotate alike share one
    std::vector<float> table;        // alibi: slopes; buckets: (distances, heads); shaw: keys (distances, e)
    std::vector<float> values;       // shaw
};

struct Attention {
    int64_t heads = 0, kv_heads = 0, e = 0, reach = 0, dilation = 1;  // reach 0: no window
    bool causal = false;
    float scale = 1;
    Linear read;         // self-attention: queries, keys and values in one product; cross-attention: queries
    Linear memory;       // cross-attention: keys and values of the memory
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
    Linear up, down;     // with a gate, `up` is (up, gate) in one product
};

struct Part {
    enum Role : int { mix, cross, feed } role = mix;
    Norm norm;
    Attention attention;
    Feed feed_forward;
    int64_t slot = -1;   // its index among the layers of the stack with the same role
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
    const Matrix* packed = nullptr;  // the head's weights, if the two are tied
    float scale = 1;
    int64_t zero = -1;  // a token whose embedding is always zero
    int64_t shift = 0;
    Stored places;
    std::vector<float> segment;
    Norm norm;
};

// The tokens that an output may contain: those of each source token, and those of any source. Empty: the whole vocabulary.
struct Shortlist {
    std::vector<int64_t> starts;  // the tokens of source token i are ids[starts[i] … starts[i + 1])
    std::vector<int32_t> ids, always;
    explicit operator bool() const { return !starts.empty(); }
};

constexpr int64_t PAGE = 8;  // tokens of the key-value cache that are allocated together

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
    int64_t slot = 0;                       // floats of the keys and values of one token in one layer
    int64_t slot_offset(int64_t mix) const { return mix * PAGE * slot; }
    std::vector<const Position*> rotaries;
    int64_t room(bool of_source) const;     // number of positions of the embedding; -1: unlimited
};

// Reads a plan (in the order of engine_plan.py), checks every number and every size, and packs the weights. `mapped`: the weights
// are whole pages of their own, and those that were copied and are read only once are released.
std::unique_ptr<Model> read_model(const double* plan, int64_t words, const unsigned char* weights, int64_t bytes,
                                  bool mapped, Precision precision, const Kernels* kernels);

}  // namespace regard
