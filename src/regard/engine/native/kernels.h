// What the rest of the engine asks of a processor: products, norms, attention, softmax, top-k.
//
// kernels.cpp is compiled once for each instruction set (see KERNELS in compile_library.py), into a table of functions each. Every table
// gives the same integers and, up to rounding, the same floats; the portable one is the plain twin of the others.
#pragma once
#include <cstdint>

namespace regard {

constexpr int64_t LANES = 16;  // outputs of a panel: one packed layout for all processors

constexpr int64_t BLOCK = 32;  // inputs that share a scale

constexpr float TINY = 1e-30f;  // numbers below it are quantized to zero: 127 / x must not overflow

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

enum class Activation : int { none, relu, gelu, gelu_tanh, silu, tanh };

// A linear map y = W·x + b, packed in panels of LANES outputs.
//
//   float32   for each input:             16 floats, one for each output of the panel
//   int8      for each four inputs:       16 × 4 bytes, w + 128: unsigned, so that activations can be the signed side
//   blocks    for each 32 inputs:         16 scales and 16 minima in float16, then eight times 16 × 4 numbers u of 4 or 8 bits:
//                                         w = scale · u + minimum. A byte has two of 4 bits: of quad j, and (above) of quad j + 4
struct Matrix {
    int64_t n = 0, k = 0;            // outputs, inputs
    const float* floats = nullptr;   // one of the three
    const uint8_t* bytes = nullptr;
    const uint8_t* blocks = nullptr;
    int bits = 8;                    // of blocks
    const float* scale = nullptr;    // of each output (int8); padded to whole panels
    const float* bias = nullptr;     // or none; padded to whole panels
    int64_t panels() const { return round_up(n, LANES) / LANES; }
    int64_t quads() const { return round_up(k, 4) / 4; }
    int64_t block_count() const { return round_up(k, BLOCK) / BLOCK; }  // of a panel
    int64_t block_bytes() const { return 4 * LANES + LANES * BLOCK * bits / 8; }
    int64_t panel_bytes() const {
        return blocks ? block_count() * block_bytes() : bytes ? quads() * 4 * LANES : k * LANES * 4;
    }
};

// Rows of activations in int8: x ≈ q · scale, with the sum of each row, which the +128 of the weights needs. In blocks, each
// block has a scale and (as `total`) its sum times the scale, which the minima of the weights need.
struct Quantized {
    int8_t* q = nullptr;
    int64_t stride = 0;
    float* scale = nullptr;
    int32_t* sum = nullptr;
    float* total = nullptr;
};

// What is done with a product besides storing it.
struct Epilogue {
    bool add = false;   // onto what is there: a residual sum
    bool relu = false;
    int64_t origin = 0;  // the panel that the first column of the output belongs to
};

// Keys and values of one head, one per position: behind a list of pointers, or at a fixed stride.
struct Keys {
    const float* const* at = nullptr;
    const float* base = nullptr;
    int64_t stride = 0, key = 0, value = 0;  // offsets of the key and the value behind each pointer
    const float* operator[](int64_t i) const { return at ? at[i] : base + i * stride; }
};

// The best `want` of a row of logits, with what log-softmax needs; filled piece by piece.
struct Top {
    float max, sum;              // sum of exp(logit - max)
    int64_t want = 0, count = 0;
    float* values = nullptr;     // best first
    int32_t* ids = nullptr;
    const uint8_t* banned = nullptr;   // one byte per token, or none
    const int32_t* also = nullptr;     // further banned tokens
    int64_t n_also = 0;
    int32_t watch = -1;          // a token whose logit is wanted in any case
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
    // Attention of one query over keys [from, to): `bias` is added to the scaled scores; leaves the weights in `weights`.
    void (*attend)(const float* q, int64_t e, const Keys& keys, int64_t from, int64_t to, float scale, const float* bias,
                   float* weights, float* out);
    void (*scan)(const float* logits, int64_t n, int64_t first, Top& top);
    void (*add_scaled)(const float* x, float factor, float* y, int64_t n);  // y += factor · x
};

// The tables that were compiled in, best first; `supported` asks this processor.
struct Choice {
    const Kernels* kernels;
    bool (*supported)();
};
const Choice* list_kernels(int* count);
const Kernels* choose_kernels(const char* name);  // "" or "auto": the best; null: unknown or not supported here

}  // namespace regard
