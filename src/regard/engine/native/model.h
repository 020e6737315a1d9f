// A model as the plan describes it, with its weights packed for the kernels.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"

namespace regard {

// A plan, a weight or a request that is refused; the message reaches the user.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Aligned memory that is never initialized and only grows.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(int64_t n) { need(n); }
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }
    // Room for n elements; what was in it is lost when it grows.
    T* need(int64_t n) {
        if (n > size_) {
            if (n > INT64_C(1) << 40) throw std::bad_alloc();
            std::free(data_);
            data_ = nullptr, size_ = 0;
            data_ = static_cast<T*>(std::aligned_alloc(64, size_t(round_up((n ? n : 1) * int64_t(sizeof(T)), 64))));
            if (!data_) throw std::bad_alloc();
            size_ = n;
        }
        return data_;
    }
    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

  private:
    T* data_ = nullptr;
    int64_t size_ = 0;
};

enum class Dtype : int { float32, float16, bfloat16, int8 };

// A matrix in the weights file; int8 has one float32 scale per row.
struct Stored {
    const unsigned char* data = nullptr;
    const unsigned char* scales = nullptr;
    Dtype dtype = Dtype::float32;
    int64_t rows = 0, cols = 0;
    explicit operator bool() const { return data != nullptr; }
    void read_row(int64_t row, float* out) const;
};

// A linear map that owns what `matrix` points to.
struct Linear {
    Matrix matrix;
    Buffer<float> floats, scale, bias;
    Buffer<uint8_t> bytes;
};

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
    float scale = 1;
    int64_t shift = 0;
    Stored places;
    std::vector<float> segment;
    Norm norm;
};

constexpr int64_t PAGE = 16;  // tokens whose keys and values are allocated together, layer by layer

struct Model {
    int64_t width = 0, vocab = 0, source_vocab = 0;
    bool has_encoder = false;
    Embedding embed, source;
    Stack encoder, decoder;
    Linear head;
    float head_scale = 1;
    bool quantized = false;
    const Kernels* kernels = nullptr;
    int64_t bytes = 0;                      // of all packed weights
    int64_t slot = 0;                       // floats of the keys and values that one token leaves in one layer
    int64_t slot_offset(int64_t mix) const { return mix * PAGE * slot; }
    std::vector<const Position*> rotaries;
    int64_t room(bool of_source) const;     // positions that the embedding has; -1: any number
};

// Reads a plan (see engine_plan.py for its order), checks every number and every size, then packs the weights.
std::unique_ptr<Model> read_model(const double* plan, int64_t words, const unsigned char* weights, int64_t bytes,
                                  bool int8, const Kernels* kernels);

}  // namespace regard
