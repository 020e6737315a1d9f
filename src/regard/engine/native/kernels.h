// The interface of the kernels: products, norms, attention, softmax, top-k.
//
// kernels.cpp is compiled once per instruction set (KERNELS in compile_library.py), into one table of functions each. All tables
// give the same integers and, up to rounding, the same floats; the portable table is the plain twin of the others.
#pragma once
#include <cstdint>

namespace regard {

constexpr int64_t LANES = 16;  // outputs per panel; the packed layout is the same on every processor

constexpr int64_t BLOCK = 32;  // inputs that share a scale

constexpr float TINY = 1e-30f;  // smaller numbers are quantized to zero, so that 127 / x is finite

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

enum class Activation : int { none, relu, gelu, gelu_tanh, silu, tanh };

// A linear map y = W·x + b, packed in panels of LANES outputs.
//
//   float32   for each input:        16 floats, one per output of the panel
//   int8      for each quad, that is four inputs: 16 × 4 bytes w + 128, unsigned because x86 multiplies unsigned by signed bytes
//   blocks    for each 32 inputs:    16 scales and 16 minima in float16, then eight quads of 16 × 4 numbers u of 4 or 8 bits:
//                                    w = scale · u + minimum. A byte holds two of 4 bits: quad j, and quad j + 4 in its upper half
struct Matrix {
    int64_t n = 0, k = 0;            // outputs, inputs
    const float* floats = nullptr;   // exactly one of the three is set
    const uint8_t* bytes = nullptr;
    const uint8_t* blocks = nullptr;
    int bits = 8;                    // of blocks
    const float* scale = nullptr;    // per output (int8), padded to whole panels
    const float* bias = nullptr;     // or null; padded to whole panels
    int64_t panels() const { return round_up(n, LANES) / LANES; }
    int64_t quads() const { return round_up(k, 4) / 4; }
    int64_t block_count() const { return round_up(k, BLOCK) / BLOCK; }  // of a panel
    int64_t block_bytes() const { return 4 * LANES + LANES * BLOCK * bits / 8; }
    int64_t panel_bytes() const {
        return blocks ? block_count() * block_bytes() : bytes ? quads() * 4 * LANES : k * LANES * 4;
    }
};

// Rows of activations in int8: x ≈ q · scale. `sum` is the sum of each row, which corrects for the +128 of the weights. In
// blocks, each block has its own scale, and `total` is its sum times the scale, which multiplies the minima of the weights.
struct Quantized {
    int8_t* q = nullptr;
    int64_t stride = 0;
    float* scale = nullptr;
    int32_t* sum = nullptr;
    float* total = nullptr;
};

// What follows a product.
struct Epilogue {
    bool add = false;    // add it to the output: a residual connection
    bool relu = false;   // apply relu
    int64_t origin = 0;  // the panel of the first output column
};

// Keys and values of one head by position: through a list of pointers, or at a fixed stride.
struct Keys {
    const float* const* at = nullptr;
    const float* base = nullptr;
    int64_t stride = 0, key = 0, value = 0;  // `key`, `value`: offsets from each pointer
    const float* operator[](int64_t i) const { return at ? at[i] : base + i * stride; }
};

// The best `want` logits of a row, and what log-softmax needs; filled piece by piece.
struct Top {
    float max, sum;              // sum of exp(logit - max)
    int64_t want = 0, count = 0;
    float* values = nullptr;     // best first
    int32_t* ids = nullptr;
    const uint8_t* banned = nullptr;   // one byte per token, or null
    const int32_t* also = nullptr;     // further banned tokens
    int64_t n_also = 0;
    int32_t watch = -1;          // a token whose logit is stored in `watched`
    float watched = 0;
};

struct Kernels {
    const char* name;
    void (*multiply_floats)(const float* x, int64_t rows, int64_t stride, const Matrix& w, int64_t from, int64_t to,
                            float* y, int64_t y_stride, Epilogue end);
    void (*multiply_bytes)(const Quantized& x, int64_t rows, const Matrix& w, int64_t from, int64_t to, float* y,
                           int64_t y_stride, Epilogue end);
    void (*multiply_blocks)(const Quantized& x, int64_t rows, const Matrix& w, int64_t from, int64_t to, float* y,
                            int64_t y_stride, Epilogue end);
    void (*quantize)(const float* x, int64_t rows, int64_t stride, int64_t k, Quantized& out);
    void (*quantize_blocks)(const float* x, int64_t rows, int64_t stride, int64_t k, Quantized& out);
    void (*layer_norm)(const float* x, float* y, int64_t n, const float* weight, const float* bias, float eps);
    void (*rms_norm)(const float* x, float* y, int64_t n, const float* weight, float eps);
    void (*activate)(Activation kind, float* x, int64_t n);
    void (*gate)(Activation kind, const float* gate, float* up, int64_t n);  // up *= activation(gate)
    // Attention of one query over keys [from, to). `bias` is added to the scaled scores; the weights are left in `weights`.
    void (*attend)(const float* q, int64_t e, const Keys& keys, int64_t from, int64_t to, float scale, const float* bias,
                   float* weights, float* out);
    void (*scan)(const float* logits, int64_t n, int64_t first, Top& top);
    void (*add_scaled)(const float* x, float factor, float* y, int64_t n);  // y += factor · x
};

// The compiled tables, best first; `supported` asks this processor.
struct Choice {
    const Kernels* kernels;
    bool (*supported)();
};
const Choice* list_kernels(int* count);
const Kernels* choose_kernels(const char* name);  // "" or "auto": the best. Returns null if it is unknown or not supported here

}  // namespace regard
