// The kernels, for the instruction set that this file is compiled for (REGARD_ISA names the table).
#include "kernels.h"

#include <cmath>

#include "block_products.h"
#include "vectors.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

namespace regard {
namespace REGARD_ISA {
namespace {

// e^x by range reduction and a polynomial of degree 6; relative error below 2e-7. Below -87 it is 0. NaN stays NaN.
inline Floats exponential(Floats x) {
    const Floats top = spread(88.3f), low = spread(-87.3f), magic = spread(12582912.f);
    Floats z = smaller(top, larger(low, x));
    Floats shifted = z * 1.44269504088896341f + magic, n = shifted - magic;
    Floats r = z - n * 0.693359375f + n * 2.12194440e-4f;
    Floats p = spread(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    p = unbits((Ints)((Bits)bits(p) + ((Bits)(bits(shifted) - bits(magic)) << 23)));
    return x < low ? Floats{} : p;
}

inline Floats hyperbolic_tangent(Floats x) { return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f); }

// erf by Abramowitz and Stegun 7.1.26: absolute error below 2e-7.
inline Floats error_function(Floats x) {
    Floats a = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.3275911f * a);
    Floats p = spread(1.061405429f);
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    Floats y = 1.0f - p * t * exponential(-a * a);
    return x < 0.0f ? -y : y;
}

inline Floats apply(Activation kind, Floats x) {
    switch (kind) {
        case Activation::relu: return larger(Floats{}, x);
        case Activation::gelu: return 0.5f * x * (1.0f + error_function(x * 0.70710678118654752f));
        case Activation::gelu_tanh:
            return 0.5f * x * (1.0f + hyperbolic_tangent(0.79788456080286536f * (x + 0.044715f * x * x * x)));
        case Activation::silu: return x / (1.0f + exponential(-x));
        case Activation::tanh: return hyperbolic_tangent(x);
        default: return x;
    }
}

void activate(Activation kind, float* x, int64_t n) {
    each(n, [&](int64_t i, int some) { store_some(x + i, apply(kind, load_some(x + i, some)), some); });
}
void gate(Activation kind, const float* g, float* up, int64_t n) {
    each(n, [&](int64_t i, int some) {
        store_some(up + i, apply(kind, load_some(g + i, some)) * load_some(up + i, some), some);
    });
}
void add_scaled(const float* x, float factor, float* y, int64_t n) {
    each(n, [&](int64_t i, int some) {
        store_some(y + i, load_some(y + i, some) + factor * load_some(x + i, some), some);
    });
}

void layer_norm(const float* x, float* y, int64_t n, const float* weight, const float* bias, float eps) {
    Floats total{};
    each(n, [&](int64_t i, int some) { total += load_some(x + i, some); });
    const float mean = sum_of(total) / float(n);
    Floats squares{};
    each(n, [&](int64_t i, int some) {
        Floats v = load_some(x + i, some, mean) - mean;
        squares += v * v;
    });
    const float factor = 1.0f / std::sqrt(sum_of(squares) / float(n) + eps);
    each(n, [&](int64_t i, int some) {
        Floats v = (load_some(x + i, some) - mean) * factor * load_some(weight + i, some);
        store_some(y + i, bias ? v + load_some(bias + i, some) : v, some);
    });
}
void rms_norm(const float* x, float* y, int64_t n, const float* weight, float eps) {
    Floats squares{};
    each(n, [&](int64_t i, int some) {
        Floats v = load_some(x + i, some);
        squares += v * v;
    });
    const float factor = 1.0f / std::sqrt(sum_of(squares) / float(n) + eps);
    each(n, [&](int64_t i, int some) { store_some(y + i, load_some(x + i, some) * factor * load_some(weight + i, some), some); });
}

// ------------------------------------------------------------------------------------------------ products

// M rows times N panels: every loaded weight serves M rows, every loaded activation N panels.
template <int M, int N>
inline void tile_floats(const float* x, int64_t stride, const Matrix& w, int64_t panel, float* y, int64_t y_stride,
                        Epilogue end) {
    const int64_t size = w.k * LANES;
    const float* from = w.floats + panel * size;
    Floats sums[M][N * PARTS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++)
            sums[i][j] = w.bias ? load(w.bias + panel * LANES + j * W) : Floats{};
    for (int64_t k = 0; k < w.k; k++) {
        Floats column[N * PARTS];
        for (int j = 0; j < N * PARTS; j++) column[j] = load(from + (j / PARTS) * size + k * LANES + (j % PARTS) * W);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            const Floats a = spread(x[i * stride + k]);
#pragma GCC unroll 8
            for (int j = 0; j < N * PARTS; j++) sums[i][j] += a * column[j];
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++) finish(y + i * y_stride + (panel - end.origin) * LANES + j * W, sums[i][j], end);
}

#if defined(__AVX512VNNI__)
template <int M, int N>
inline void dot_bytes(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, Ints (&sums)[M][N * PARTS]) {
    const int64_t quads = w.quads(), size = quads * 64;
    const uint8_t* from = w.bytes + panel * size;
    const int8_t* a = x.q + row * x.stride;
    __m512i total[M][N];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) total[i][j] = _mm512_setzero_si512();
    for (int64_t k = 0; k < quads; k++) {
        __m512i column[N];
        for (int j = 0; j < N; j++) column[j] = _mm512_loadu_si512(from + j * size + k * 64);
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            int32_t four;
            std::memcpy(&four, a + i * x.stride + k * 4, 4);
            const __m512i spread4 = _mm512_set1_epi32(four);
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) total[i][j] = _mm512_dpbusd_epi32(total[i][j], column[j], spread4);
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) sums[i][j] = (Ints)total[i][j];
}
#elif defined(__AVX2__)
// Without VNNI: 16-bit products. One instruction adds pairs; the two halves of a quad are added at the end.
template <int M, int N>
inline void dot_bytes(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, Ints (&sums)[M][N * PARTS]) {
    const int64_t quads = w.quads(), size = quads * 64;
    for (int j = 0; j < N; j++) {
        const uint8_t* from = w.bytes + (panel + j) * size;
        for (int i = 0; i < M; i++) {
            const int8_t* a = x.q + (row + i) * x.stride;
            __m256i total[4];  // four outputs each, two halves of a quad per output
            for (auto& t : total) t = _mm256_setzero_si256();
            for (int64_t k = 0; k < quads; k++) {
                int32_t four;
                std::memcpy(&four, a + k * 4, 4);
                const __m256i wide = _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
                for (int part = 0; part < 4; part++) {
                    const __m128i sixteen = _mm_loadu_si128((const __m128i*)(from + k * 64 + part * 16));
                    total[part] = _mm256_add_epi32(total[part], _mm256_madd_epi16(_mm256_cvtepu8_epi16(sixteen), wide));
                }
            }
            int32_t out[LANES];
            for (int part = 0; part < 4; part++) {
                int32_t halves[8];
                _mm256_storeu_si256((__m256i*)halves, total[part]);
                for (int o = 0; o < 4; o++) out[part * 4 + o] = halves[2 * o] + halves[2 * o + 1];
            }
            for (int part = 0; part < PARTS; part++) std::memcpy(&sums[i][j * PARTS + part], out + part * W, sizeof(Ints));
        }
    }
}
#elif defined(__ARM_FEATURE_DOTPROD)
// NEON multiplies signed by signed bytes: flipping the highest bit makes the weights signed, and starting from 128 · sum makes up
// for it.
template <int M, int N>
inline void dot_bytes(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, Ints (&sums)[M][N * PARTS]) {
    const int64_t quads = w.quads(), size = quads * 64;
    const uint8_t* from = w.bytes + panel * size;
    const int8_t* a = x.q + row * x.stride;
    const uint8x16_t turn = vdupq_n_u8(128);
    int32x4_t total[M][N * PARTS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++) total[i][j] = vdupq_n_s32(128 * x.sum[row + i]);
    for (int64_t k = 0; k < quads; k++) {
        int8x16_t column[N * PARTS];
        for (int j = 0; j < N * PARTS; j++) {
            const uint8_t* p = from + (j / PARTS) * size + k * 64 + (j % PARTS) * 16;
            column[j] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p), turn));
        }
#pragma GCC unroll 8
        for (int i = 0; i < M; i++) {
            int32_t four;
            std::memcpy(&four, a + i * x.stride + k * 4, 4);
            const int8x16_t spread4 = vreinterpretq_s8_s32(vdupq_n_s32(four));
#pragma GCC unroll 8
            for (int j = 0; j < N * PARTS; j++) total[i][j] = vdotq_s32(total[i][j], column[j], spread4);
        }
    }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++) std::memcpy(&sums[i][j], &total[i][j], sizeof(Ints));
}
#else
template <int M, int N>
inline void dot_bytes(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, Ints (&sums)[M][N * PARTS]) {
    const int64_t quads = w.quads(), size = quads * 64;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            const uint8_t* from = w.bytes + (panel + j) * size;
            const int8_t* a = x.q + (row + i) * x.stride;
            int32_t out[LANES] = {};
            for (int64_t k = 0; k < quads; k++)
                for (int o = 0; o < LANES; o++)
                    for (int b = 0; b < 4; b++) out[o] += int32_t(from[k * 64 + o * 4 + b]) * int32_t(a[k * 4 + b]);
            for (int part = 0; part < PARTS; part++) std::memcpy(&sums[i][j * PARTS + part], out + part * W, sizeof(Ints));
        }
}
#endif

template <int M, int N>
inline void tile_bytes(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, float* y, int64_t y_stride,
                       Epilogue end) {
    Ints sums[M][N * PARTS];
    dot_bytes<M, N>(x, row, w, panel, sums);
    for (int i = 0; i < M; i++) {
        const Floats factor = spread(x.scale[row + i]);
        const Ints shift = Ints{} + 128 * x.sum[row + i];
        for (int j = 0; j < N * PARTS; j++) {
            const int64_t at = panel * LANES + j * W;
            Floats v = __builtin_convertvector(sums[i][j] - shift, Floats) * (factor * load(w.scale + at));
            if (w.bias) v += load(w.bias + at);
            finish(y + (row + i) * y_stride + at - end.origin * LANES, v, end);
        }
    }
}

void multiply_floats(const float* x, int64_t rows, int64_t stride, const Matrix& w, int64_t from, int64_t to, float* y,
                     int64_t y_stride, Epilogue end) {
    tile_all(rows, from, to, [&](auto m, auto n, int64_t row, int64_t panel) {
        tile_floats<m(), n()>(x + row * stride, stride, w, panel, y + row * y_stride, y_stride, end);
    });
}
void multiply_bytes(const Quantized& x, int64_t rows, const Matrix& w, int64_t from, int64_t to, float* y,
                    int64_t y_stride, Epilogue end) {
    tile_all(rows, from, to, [&](auto m, auto n, int64_t row, int64_t panel) {
        tile_bytes<m(), n()>(x, row, w, panel, y, y_stride, end);
    });
}

void quantize(const float* x, int64_t rows, int64_t stride, int64_t k, Quantized& out) {
    for (int64_t row = 0; row < rows; row++) {
        int8_t* to = out.q + row * out.stride;
        const Rounded rounded = quantize_numbers(x + row * stride, k, to);
        for (int64_t i = k; i < round_up(k, 4); i++) to[i] = 0;
        out.scale[row] = rounded.scale, out.sum[row] = rounded.sum;
    }
}

// ------------------------------------------------------------------------------------------------ attention

inline float dot(const float* a, const float* b, int64_t n) {
    Floats total{};
    each(n, [&](int64_t i, int some) { total += load_some(a + i, some) * load_some(b + i, some); });
    return sum_of(total);
}

// The sums of four vectors at once: horizontal adds share steps that four separate sums would repeat.
inline void sums_of_four(const Floats (&v)[4], float* out) {
#if defined(__AVX2__)
    const auto half = [](Floats x) {
#if defined(__AVX512F__)
        return _mm256_add_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
#else
        return (__m256)x;
#endif
    };
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(half(v[0]), half(v[1])), _mm256_hadd_ps(half(v[2]), half(v[3])));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
#else
    for (int i = 0; i < 4; i++) out[i] = sum_of(v[i]);
#endif
}

// Softmax in place. As in torch, one NaN makes all of them NaN: a broken model must not go unnoticed.
inline void softmax(float* x, int64_t n) {
    Floats top = spread(LOWEST);
    each(n, [&](int64_t i, int some) { top = larger(load_some(x + i, some, LOWEST), top); });
    const float most = max_of(top);
    Floats total{};
    each(n, [&](int64_t i, int some) {
        const Floats v = exponential(load_some(x + i, some, LOWEST) - most);
        total += v;
        store_some(x + i, v, some);
    });
    const float share = 1.0f / sum_of(total);
    each(n, [&](int64_t i, int some) { store_some(x + i, load_some(x + i, some) * share, some); });
}

// Prefetches the key or value AHEAD positions later: behind pointers, the processor cannot predict its address.
constexpr int64_t AHEAD = 8;
inline void fetch(const Keys& keys, int64_t t, int64_t m, int64_t offset, int64_t n) {
    if (t + AHEAD >= m) return;
    const char* p = reinterpret_cast<const char*>(keys[t + AHEAD] + offset);
    for (int64_t i = 0; i < n * 4; i += 64) __builtin_prefetch(p + i);
}

template <int N>
inline void mix_values(const float* weights, const Keys& keys, int64_t m, int64_t at, float* out) {
    Floats total[N] = {};
    for (int64_t t = 0; t < m; t++) {
        const float* v = keys[t] + keys.value + at;
        fetch(keys, t, m, keys.value + at, N * W);
        const Floats w = spread(weights[t]);
        for (int j = 0; j < N; j++) total[j] += w * load(v + j * W);
    }
    for (int j = 0; j < N; j++) store(out + at + j * W, total[j]);
}

void attend(const float* q, int64_t e, const Keys& all, int64_t from, int64_t to, float scale, const float* bias,
            float* weights, float* out) {
    Keys keys = all;
    if (keys.at) keys.at += from;
    else keys.base += from * keys.stride;
    const int64_t m = to - from;
    int64_t t = 0;
    for (; t + 4 <= m; t += 4) {
        const float *a = keys[t] + keys.key, *b = keys[t + 1] + keys.key, *c = keys[t + 2] + keys.key, *d = keys[t + 3] + keys.key;
        for (int64_t i = 0; i < 4; i++) fetch(keys, t + i, m, keys.key, e);
        Floats four[4] = {};
        each(e, [&](int64_t i, int some) {
            const Floats query = load_some(q + i, some);
            four[0] += query * load_some(a + i, some), four[1] += query * load_some(b + i, some);
            four[2] += query * load_some(c + i, some), four[3] += query * load_some(d + i, some);
        });
        sums_of_four(four, weights + t);
    }
    for (; t < m; t++) weights[t] = dot(q, keys[t] + keys.key, e);
    for (int64_t i = 0; i < m; i++) weights[i] *= scale;
    if (bias)
        for (int64_t t = 0; t < m; t++) weights[t] += bias[t];
    softmax(weights, m);
    int64_t at = 0;
    for (; at + 4 * W <= e; at += 4 * W) mix_values<4>(weights, keys, m, at, out);
    for (; at + 2 * W <= e; at += 2 * W) mix_values<2>(weights, keys, m, at, out);
    for (; at + W <= e; at += W) mix_values<1>(weights, keys, m, at, out);
    for (; at < e; at++) {
        float total = 0;
        for (int64_t t = 0; t < m; t++) total += weights[t] * keys[t][keys.value + at];
        out[at] = total;
    }
}

// ------------------------------------------------------------------------------------------------ output

inline bool is_banned(const Top& top, int32_t id) {
    if (top.banned && top.banned[id]) return true;
    for (int64_t i = 0; i < top.n_also; i++)
        if (top.also[i] == id) return true;
    return false;
}

inline void insert(Top& top, float value, int32_t id) {
    if (is_banned(top, id)) return;
    int64_t i = top.count < top.want ? top.count++ : top.want - 1;
    for (; i > 0 && top.values[i - 1] < value; i--) {
        top.values[i] = top.values[i - 1];
        top.ids[i] = top.ids[i - 1];
    }
    top.values[i] = value;
    top.ids[i] = id;
}

void scan(const float* logits, int64_t n, int64_t first, Top& top) {
    Floats highest = spread(LOWEST);
    each(n, [&](int64_t i, int some) { highest = larger(load_some(logits + i, some, LOWEST), highest); });  // not NaN
    const float most = max_of(highest);
    if (most > top.max) {
        top.sum = top.max == LOWEST ? 0.0f : top.sum * std::exp(top.max - most);
        top.max = most;
    }
    if (top.max > LOWEST) {
        Floats total{};
        const float max = top.max;
        each(n, [&](int64_t i, int some) { total += exponential(load_some(logits + i, some, LOWEST) - max); });
        top.sum += sum_of(total);
    }
    if (top.watch >= first && top.watch < first + n) top.watched = logits[top.watch - first];
    if (!top.want) return;
    if (top.count == top.want && most <= top.values[top.want - 1]) return;
    each(n, [&](int64_t i, int some) {
        const float bar = top.count == top.want ? top.values[top.want - 1] : LOWEST;
        const Ints above = load_some(logits + i, some, LOWEST) > spread(bar);
#if defined(__AVX512F__)
        if (!_mm512_test_epi32_mask((__m512i)above, (__m512i)above)) return;
#endif
        for (int j = 0; j < some; j++)
            if (above[j] && (top.count < top.want || logits[i + j] > top.values[top.want - 1]))
                insert(top, logits[i + j], int32_t(first + i + j));
    });
}

}  // namespace

extern const Kernels table;
const Kernels table = {TEXT(REGARD_ISA), multiply_floats, multiply_bytes, multiply_blocks, quantize, quantize_blocks,
                       layer_norm,       rms_norm,        activate,       gate,            attend,   scan,
                       add_scaled};

}  // namespace REGARD_ISA
}  // namespace regard
