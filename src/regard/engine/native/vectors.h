// Vectors of the instruction set that this file is compiled for (REGARD_ISA names the table), and loops over them.
#pragma once
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels.h"
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

#ifndef REGARD_ISA
#define REGARD_ISA portable
#endif

namespace regard {
namespace REGARD_ISA {
namespace {

// Vectors of W floats, as GCC and Clang provide them. A tile of a product has at most ROWS rows; with at most FEW rows, it is
// WIDE panels wide.
#if defined(__AVX512F__)
constexpr int W = 16, ROWS = 8, FEW = 4, WIDE = 4;
#elif defined(__AVX2__)
constexpr int W = 8, ROWS = 4, FEW = 2, WIDE = 2;
#elif defined(__ARM_FEATURE_DOTPROD)
constexpr int W = 4, ROWS = 4, FEW = 2, WIDE = 2;
#else
constexpr int W = 4, ROWS = 2, FEW = 1, WIDE = 1;
#endif
constexpr int PARTS = LANES / W;  // vectors of a panel
typedef float Floats __attribute__((vector_size(W * 4)));
typedef int32_t Ints __attribute__((vector_size(W * 4)));
typedef uint32_t Bits __attribute__((vector_size(W * 4)));
constexpr float LOWEST = -std::numeric_limits<float>::infinity();

inline Floats load(const float* p) { Floats v; std::memcpy(&v, p, sizeof v); return v; }
inline void store(float* p, Floats v) { std::memcpy(p, &v, sizeof v); }
inline Floats spread(float x) { return Floats{} + x; }
inline Ints bits(Floats v) { Ints i; std::memcpy(&i, &v, sizeof i); return i; }
inline Floats unbits(Ints i) { Floats v; std::memcpy(&v, &i, sizeof v); return v; }
// One instruction each. The order of operands matters: where either is NaN, the result is b.
inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }
inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

inline float sum_of(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    float s = 0;
    for (int i = 0; i < W; i++) s += v[i];
    return s;
#endif
}
inline float max_of(Floats v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    float m = v[0];
    for (int i = 1; i < W; i++) m = v[i] > m ? v[i] : m;
    return m;
#endif
}

// Calls f(first, W) for every whole vector of n floats, then f(first, count) for the rest.
template <class F>
inline void each(int64_t n, F f) {
    int64_t i = 0;
    for (; i + W <= n; i += W) f(i, W);
    if (i < n) f(i, int(n - i));
}
inline Floats load_some(const float* p, int count, float fill = 0) {
    if (count == W) return load(p);
    Floats v = spread(fill);
    for (int i = 0; i < count; i++) v[i] = p[i];
    return v;
}
inline void store_some(float* p, Floats v, int count) {
    if (count == W) return store(p, v);
    for (int i = 0; i < count; i++) p[i] = v[i];
}

// Rounds n numbers to int8: x ≈ q · scale. If any of them is infinite or NaN, the scale is NaN.
struct Rounded {
    float scale;
    int32_t sum;  // of all q
};
inline Rounded quantize_numbers(const float* from, int64_t n, int8_t* to) {
    Floats top{};
    each(n, [&](int64_t i, int some) {
        const Floats v = load_some(from + i, some);
        top = larger(v < 0.0f ? -v : v, top);
    });
    const float most = max_of(top), factor = most > TINY ? 127.0f / most : 0.0f;
    const Floats highest = spread(127.0f), magic = spread(12582912.f);  // adding it rounds to integers, ties to even
    Floats sums{};
    each(n, [&](int64_t i, int some) {
        const Floats shifted = smaller(highest, load_some(from + i, some) * factor) + magic;
        const Ints whole = bits(shifted) - bits(magic);
        sums += shifted - magic;  // exact below 2^24; NaN if any number is
#if defined(__AVX512F__)
        if (some == W) {
            _mm_storeu_si128((__m128i*)(to + i), _mm512_cvtepi32_epi8((__m512i)whole));
            return;
        }
#endif
        for (int b = 0; b < some; b++) to[i + b] = int8_t(whole[b]);
    });
    const float sum = sum_of(sums);
    if (sum != sum) return {sum, 0};
    return {most / 127.0f, int32_t(sum)};
}

inline void finish(float* y, Floats v, Epilogue end) {
    if (end.add) v += load(y);
    if (end.relu) v = larger(Floats{}, v);  // NaN stays
    store(y, v);
}

// Calls f with the number of rows as a constant: with_rows<8>(3, f) calls f(integral_constant<int, 3>).
template <int M, class F>
inline void with_rows(int64_t m, F f) {
    if constexpr (M > 0) {
        if (m == M) return f(std::integral_constant<int, M>());
        with_rows<M - 1>(m, f);
    }
}
// Covers a product with tiles: rows in equal groups of at most ROWS. The loop over panels is the outer one, so that each panel is
// read from memory once.
template <class Tile>
inline void tile_all(int64_t rows, int64_t from, int64_t to, Tile tile) {
    const int64_t blocks = (rows + ROWS - 1) / ROWS, size = blocks ? (rows + blocks - 1) / blocks : 0;
    constexpr int TWO = WIDE > 1 ? WIDE / 2 : 1;
    int64_t p = from;
    if (rows <= FEW)
        for (; p + WIDE <= to; p += WIDE)
            with_rows<FEW>(rows, [&](auto m) { tile(m, std::integral_constant<int, WIDE>(), int64_t(0), p); });
    for (int64_t step = TWO; step > 0; step = step > 1 ? 1 : 0)
        for (; p + step <= to; p += step)
            for (int64_t row = 0; row < rows; row += size)
                with_rows<ROWS>(row + size <= rows ? size : rows - row, [&](auto m) {
                    if (step == 1) tile(m, std::integral_constant<int, 1>(), row, p);
                    else tile(m, std::integral_constant<int, TWO>(), row, p);
                });
}

}  // namespace
}  // namespace REGARD_ISA
}  // namespace regard
