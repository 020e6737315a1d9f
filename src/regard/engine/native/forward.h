// The forward pass over rows of tokens, from any sentences and positions, without padding.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "model.h"
#include "pages.h"
#include "stop.h"
#include "team.h"

namespace regard {

// What the decoder reads of one source: the keys and values of each cross-attention layer.
struct Memory {
    std::shared_ptr<Buffer<float>> data;  // shared by all sources that were encoded together
    std::vector<const float*> base;       // by cross-attention layer
    int64_t n = 0;
};

// The rows of a pass, one per token. In the encoder, the rows of a sentence are `length` rows from row `first` on. In the decoder,
// `past` points to the slots of all tokens up to this one, whose own slot the pass fills.
struct Rows {
    std::vector<int32_t> tokens;
    std::vector<int64_t> pos, first, length;
    std::vector<float* const*> past;
    std::vector<const Memory*> memory;
    int64_t size() const { return int64_t(tokens.size()); }
    void clear() { tokens.clear(), pos.clear(), first.clear(), length.clear(), past.clear(), memory.clear(); }
};

// A pass throws `Stopped` when its caller wants it to end.
class Forward {
  public:
    explicit Forward(const Model& model, Team* team = nullptr) : model_(model), k_(*model.kernels), team_(team) {}
    void watch(const Stop& stop) { stop_ = &stop; }  // which must live as long as passes are taken
    // Both leave their output (rows, d) in `stream()`, with `stride()` floats per row.
    void encode(const Rows& rows);
    void decode(const Rows& rows);
    // After `encode`: the keys and values that the decoder reads, for each sentence in `rows`.
    std::vector<Memory> remember(const Rows& rows);
    // Applies a head to the n rows `which` of the stream; fills one Top per row, and all logits if `logits` is given.
    void score(const Linear& head, const int64_t* which, Top* tops, int64_t n, float* logits);

    const float* stream() const { return x_.get(); }
    int64_t stride() const { return round_up(model_.width, LANES); }
    bool shares = false;  // whether the team shares large products

  private:
    void embed(const Embedding& e, const Rows& rows, int64_t vocab);
    void run(const Stack& stack, const Rows& rows, bool decoder);
    void mix(const Part& part, const float* x, const Rows& rows, bool decoder, Epilogue end);
    void cross(const Part& part, const float* x, const Rows& rows, Epilogue end);
    void feed(const Part& part, const float* x, int64_t rows, Epilogue end);
    void multiply(const Linear& w, const float* x, int64_t rows, int64_t stride, float* y, int64_t y_stride, Epilogue end);
    Quantized quantize(const Matrix& m, const float* x, int64_t rows, int64_t stride);
    void multiply_panels(const Matrix& m, const float* x, const Quantized& q, int64_t rows, int64_t stride, int64_t from,
                         int64_t to, float* y, int64_t y_stride, Epilogue end) const;
    void normalize(const Norm& norm, const float* x, float* y, int64_t rows, int64_t stride, int64_t n);
    void rotate(const Position& p, float* x, int64_t pos, int64_t heads, int64_t e);
    struct Scratch {  // per thread
        Buffer<float> weights, bias, relative;
    };
    void attend(const Attention& a, const float* q, Keys keys, int64_t kv_base, int64_t m, int64_t pos, bool plain, float* out,
                Scratch& scratch) const;
    // Calls f(row, scratch) for every row, on the whole team if there are many. `longest`: the most keys that a row attends to.
    template <class F>
    void each_row(int64_t rows, int64_t longest, const Attention& a, F f);
    const float* waves(const Embedding& e, int64_t pos);

    const Model& model_;
    const Kernels& k_;
    Team* team_;
    const Stop never_, *stop_ = &never_;
    Buffer<float> x_, y_, wide_, mixed_, chunk_, row_;
    std::vector<std::unique_ptr<Scratch>> scratch_;
    Buffer<int8_t> q_;
    Buffer<float> q_scale_, q_total_;
    Buffer<int32_t> q_sum_;
    std::vector<float> waves_[2];
    std::vector<std::vector<float>> turns_;  // cosines and sines by position, for each rotary table
    struct Share {
        Buffer<float> chunk, values;
        Buffer<int32_t> ids;
        std::vector<Top> tops;
    };
    std::vector<std::unique_ptr<Share>> parts_;
};

}  // namespace regard
