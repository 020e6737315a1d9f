// Products with weights in blocks: 32 inputs share a scale and a minimum. Only `unpack` and `dot_block` depend on the processor;
// the last version of each is the plain twin of the others.
#pragma once
#include "vectors.h"

namespace regard {
namespace REGARD_ISA {
namespace {

constexpr int QUADS = BLOCK / 4;

// Sixteen float16 numbers as floats; none is infinite or NaN.
struct Halves {
    Floats part[PARTS];
};
inline Halves read_halves(const uint8_t* p) {
    Halves out;
#if defined(__AVX512F__)
    out.part[0] = (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
#else
    typedef uint16_t Shorts __attribute__((vector_size(W * 2)));
    for (int i = 0; i < PARTS; i++) {
        Shorts h;
        std::memcpy(&h, p + i * W * 2, sizeof h);
        const Bits wide = __builtin_convertvector(h, Bits);
        const Floats value = unbits((Ints)((wide & 0x7FFF) << 13)) * 0x1p112f;  // the exponents have different biases
        out.part[i] = unbits(bits(value) | (Ints)((wide & 0x8000) << 16));
    }
#endif
    return out;
}

// `unpack` turns the numbers of a block into bytes, quad by quad; `dot_block` multiplies them with 32 activations and adds up the
// products of each output.
#if defined(__AVX512BW__)
struct Unpacked {
    __m512i quad[QUADS];
};
template <int BITS>
inline Unpacked unpack(const uint8_t* p) {
    Unpacked out;
    const __m512i low = _mm512_set1_epi8(15);
    for (int q = 0; q < (BITS == 4 ? QUADS / 2 : QUADS); q++) {
        const __m512i v = _mm512_loadu_si512(p + q * 64);
        if (BITS == 4) {
            out.quad[q] = _mm512_and_si512(v, low);
            out.quad[q + QUADS / 2] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
        } else {
            out.quad[q] = v;
        }
    }
    return out;
}
inline __m512i spread_four(const int8_t* a) {
    int32_t four;
    std::memcpy(&four, a, 4);
    return _mm512_set1_epi32(four);
}
template <int BITS>
inline void dot_block(const Unpacked& u, const int8_t* a, Floats (&sums)[PARTS]) {
#if defined(__AVX512VNNI__)
    __m512i even = _mm512_setzero_si512(), odd = even;
#pragma GCC unroll 4
    for (int q = 0; q < QUADS; q += 2) {
        even = _mm512_dpbusd_epi32(even, u.quad[q], spread_four(a + q * 4));
        odd = _mm512_dpbusd_epi32(odd, u.quad[q + 1], spread_four(a + q * 4 + 4));
    }
    const __m512i total = _mm512_add_epi32(even, odd);
#else
    // Sums of eight pairs of 4-bit by 8-bit products fit into 16 bits: 8 · 2 · 15 · 127 < 2^15. Numbers of 8 bits are split into
    // two halves of 4 bits.
    const __m512i low = _mm512_set1_epi8(15);
    __m512i pairs = _mm512_setzero_si512(), above = pairs;
    for (int q = 0; q < QUADS; q++) {
        const __m512i x = spread_four(a + q * 4);
        if (BITS == 4) {
            pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(u.quad[q], x));
        } else {
            pairs = _mm512_add_epi16(pairs, _mm512_maddubs_epi16(_mm512_and_si512(u.quad[q], low), x));
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(u.quad[q], 4), low);
            above = _mm512_add_epi16(above, _mm512_maddubs_epi16(high, x));
        }
    }
    __m512i total = _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
    if (BITS == 8) total = _mm512_add_epi32(total, _mm512_madd_epi16(above, _mm512_set1_epi16(16)));
#endif
    sums[0] = __builtin_convertvector((Ints)total, Floats);
}
#elif defined(__AVX2__)
struct Unpacked {
    __m256i quad[QUADS][2];
};
template <int BITS>
inline Unpacked unpack(const uint8_t* p) {
    Unpacked out;
    const __m256i low = _mm256_set1_epi8(15);
    for (int q = 0; q < (BITS == 4 ? QUADS / 2 : QUADS); q++)
        for (int h = 0; h < 2; h++) {
            const __m256i v = _mm256_loadu_si256((const __m256i*)(p + q * 64 + h * 32));
            if (BITS == 4) {
                out.quad[q][h] = _mm256_and_si256(v, low);
                out.quad[q + QUADS / 2][h] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
            } else {
                out.quad[q][h] = v;
            }
        }
    return out;
}
template <int BITS>
inline void dot_block(const Unpacked& u, const int8_t* a, Floats (&sums)[PARTS]) {  // as above, in two halves
    const __m256i low = _mm256_set1_epi8(15);
    for (int h = 0; h < 2; h++) {
        __m256i pairs = _mm256_setzero_si256(), above = pairs;
        for (int q = 0; q < QUADS; q++) {
            int32_t four;
            std::memcpy(&four, a + q * 4, 4);
            const __m256i x = _mm256_set1_epi32(four);
            if (BITS == 4) {
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(u.quad[q][h], x));
            } else {
                pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(_mm256_and_si256(u.quad[q][h], low), x));
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(u.quad[q][h], 4), low);
                above = _mm256_add_epi16(above, _mm256_maddubs_epi16(high, x));
            }
        }
        __m256i total = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        if (BITS == 8) total = _mm256_add_epi32(total, _mm256_madd_epi16(above, _mm256_set1_epi16(16)));
        sums[h] = __builtin_convertvector((Ints)total, Floats);
    }
}
#elif defined(__ARM_FEATURE_DOTPROD)
struct Unpacked {
    int8x16_t quad[QUADS][PARTS];
};
template <int BITS>
inline Unpacked unpack(const uint8_t* p) {  // numbers of 8 bits become signed
    Unpacked out;
    const uint8x16_t low = vdupq_n_u8(15), turn = vdupq_n_u8(128);
    for (int q = 0; q < (BITS == 4 ? QUADS / 2 : QUADS); q++)
        for (int part = 0; part < PARTS; part++) {
            const uint8x16_t v = vld1q_u8(p + q * 64 + part * 16);
            if (BITS == 4) {
                out.quad[q][part] = vreinterpretq_s8_u8(vandq_u8(v, low));
                out.quad[q + QUADS / 2][part] = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
            } else {
                out.quad[q][part] = vreinterpretq_s8_u8(veorq_u8(v, turn));
            }
        }
    return out;
}
template <int BITS>
inline void dot_block(const Unpacked& u, const int8_t* a, Floats (&sums)[PARTS]) {
    const int32_t sum = BITS == 4 ? 0 : vaddlvq_s8(vld1q_s8(a)) + vaddlvq_s8(vld1q_s8(a + 16));
    int32x4_t total[PARTS];
    for (int part = 0; part < PARTS; part++) total[part] = vdupq_n_s32(128 * sum);  // makes up for the flipped bit
    for (int q = 0; q < QUADS; q++) {
        int32_t four;
        std::memcpy(&four, a + q * 4, 4);
        const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
        for (int part = 0; part < PARTS; part++) total[part] = vdotq_s32(total[part], u.quad[q][part], x);
    }
    for (int part = 0; part < PARTS; part++) {
        Ints some;
        std::memcpy(&some, &total[part], sizeof some);
        sums[part] = __builtin_convertvector(some, Floats);
    }
}
#else
struct Unpacked {
    uint8_t quad[QUADS][LANES * 4];
};
template <int BITS>
inline Unpacked unpack(const uint8_t* p) {
    Unpacked out;
    if (BITS == 8) {
        std::memcpy(out.quad, p, sizeof out.quad);
        return out;
    }
    for (int q = 0; q < QUADS / 2; q++)
        for (int i = 0; i < LANES * 4; i++) {
            out.quad[q][i] = p[q * 64 + i] & 15;
            out.quad[q + QUADS / 2][i] = p[q * 64 + i] >> 4;
        }
    return out;
}
template <int BITS>
inline void dot_block(const Unpacked& u, const int8_t* a, Floats (&sums)[PARTS]) {
    int32_t total[LANES] = {};
    for (int q = 0; q < QUADS; q++)
        for (int o = 0; o < LANES; o++)
            for (int b = 0; b < 4; b++) total[o] += int32_t(u.quad[q][o * 4 + b]) * int32_t(a[q * 4 + b]);
    for (int part = 0; part < PARTS; part++) {
        Ints some;
        std::memcpy(&some, total + part * W, sizeof some);
        sums[part] = __builtin_convertvector(some, Floats);
    }
}
#endif

template <int BITS, int M, int N>
inline void tile_blocks(const Quantized& x, int64_t row, const Matrix& w, int64_t panel, float* y, int64_t y_stride,
                        Epilogue end) {
    const int64_t count = w.block_count(), bytes = w.block_bytes(), size = count * bytes;
    const uint8_t* from = w.blocks + panel * size;
    Floats sums[M][N * PARTS];
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++) sums[i][j] = w.bias ? load(w.bias + panel * LANES + j * W) : Floats{};
    for (int64_t b = 0; b < count; b++)
        for (int j = 0; j < N; j++) {
            const uint8_t* p = from + j * size + b * bytes;
            const Halves scale = read_halves(p), least = read_halves(p + 2 * LANES);
            const Unpacked u = unpack<BITS>(p + 4 * LANES);
#pragma GCC unroll 8
            for (int i = 0; i < M; i++) {
                Floats products[PARTS];
                dot_block<BITS>(u, x.q + (row + i) * x.stride + b * BLOCK, products);
                const Floats factor = spread(x.scale[(row + i) * count + b]), total = spread(x.total[(row + i) * count + b]);
                for (int part = 0; part < PARTS; part++)
                    sums[i][j * PARTS + part] += products[part] * (scale.part[part] * factor) + least.part[part] * total;
            }
        }
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N * PARTS; j++)
            finish(y + (row + i) * y_stride + (panel - end.origin) * LANES + j * W, sums[i][j], end);
}

void multiply_blocks(const Quantized& x, int64_t rows, const Matrix& w, int64_t from, int64_t to, float* y,
                     int64_t y_stride, Epilogue end) {
    tile_all(rows, from, to, [&](auto m, auto n, int64_t row, int64_t panel) {
        if (w.bits == 4) tile_blocks<4, m(), n()>(x, row, w, panel, y, y_stride, end);
        else tile_blocks<8, m(), n()>(x, row, w, panel, y, y_stride, end);
    });
}

void quantize_blocks(const float* x, int64_t rows, int64_t stride, int64_t k, Quantized& out) {
    const int64_t count = round_up(k, BLOCK) / BLOCK;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t b = 0; b < count; b++) {
            const int64_t real = k - b * BLOCK < BLOCK ? k - b * BLOCK : BLOCK;
            int8_t* to = out.q + row * out.stride + b * BLOCK;
            const Rounded rounded = quantize_numbers(x + row * stride + b * BLOCK, real, to);
            for (int64_t i = real; i < BLOCK; i++) to[i] = 0;
            out.scale[row * count + b] = rounded.scale;
            out.total[row * count + b] = float(rounded.sum) * rounded.scale;
        }
}

}  // namespace
}  // namespace REGARD_ISA
}  // namespace regard
