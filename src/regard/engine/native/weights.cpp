#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace regard {
namespace {

constexpr float MAX_HALF = 65504;  // the largest float16

float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h >> 15) << 31, exponent = (h >> 10) & 31, fraction = h & 1023;
    float value;
    if (exponent == 0) {
        value = std::ldexp(float(fraction), -24);
        return sign ? -value : value;
    }
    const uint32_t bits = sign | (exponent == 31 ? 0x7F800000u : (exponent + 112) << 23) | (fraction << 13);
    std::memcpy(&value, &bits, 4);
    return value;
}

// To the nearest, halves to even; |x| ≤ 65504.
uint16_t float_to_half(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    const float size = std::fabs(x);
    if (size < 0x1p-14f) return uint16_t(sign | uint16_t(std::nearbyint(size * 0x1p24f)));  // subnormal
    bits = (bits & 0x7FFFFFFF) - (112u << 23);
    return uint16_t(sign | ((bits + 0xFFF + (bits >> 13 & 1)) >> 13));
}

float read_scale(const unsigned char* from, int64_t i, Dtype dtype) {
    if (dtype == Dtype::float16) {
        uint16_t half;
        std::memcpy(&half, from + 2 * i, 2);
        return half_to_float(half);
    }
    float value;
    std::memcpy(&value, from + 4 * i, 4);
    return value;
}

// Rounds |x| < 2^22 to the nearest whole number, halves to even.
int round_to_int(float x) { return int(x + 12582912.0f - 12582912.0f); }

float find_largest(const float* x, int64_t n, float limit) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(std::fabs(x[i]) <= limit)) throw Refused("a weight is too large, or not a number");
        most = std::max(most, std::fabs(x[i]));
    }
    return most;
}

// Writes block b of output i: w = scale · u + least.
void put_block(Linear& out, int64_t i, int64_t b, float scale, float least, const uint8_t* u) {
    const Matrix& m = out.matrix;
    const int64_t lane = i % LANES;
    uint8_t* to = out.bytes.get() + (i / LANES * m.block_count() + b) * m.block_bytes();
    if (!(std::fabs(scale) <= MAX_HALF && std::fabs(least) <= MAX_HALF)) throw Refused("a weight is too large, or not a number");
    const uint16_t halves[] = {float_to_half(scale), float_to_half(least)};
    std::memcpy(to + 2 * lane, halves, 2), std::memcpy(to + 2 * (LANES + lane), halves + 1, 2);
    to += 4 * LANES + lane * 4;
    for (int64_t e = 0; e < BLOCK; e++) {
        const int64_t quad = e / 4, byte = e % 4, half = BLOCK / 8;
        if (m.bits == 8) to[quad * 64 + byte] = u[e];
        else if (quad < half) to[quad * 64 + byte] = u[e];
        else to[(quad - half) * 64 + byte] = uint8_t(to[(quad - half) * 64 + byte] | u[e] << 4);
    }
}

void copy_blocks(Linear& out, int64_t i, const Stored& from, int64_t row) {
    uint8_t u[BLOCK];
    for (int64_t b = 0; b < out.matrix.block_count(); b++) {
        const auto [scale, least] = from.read_block(row, b, u);
        put_block(out, i, b, scale, least, u);
    }
}

// 8 bits; 4 only where all is zero, beyond the last output. The row has zeros behind its end.
void quantize_blocks(Linear& out, int64_t i, const std::vector<float>& row) {
    uint8_t u[BLOCK];
    for (int64_t b = 0; b < out.matrix.block_count(); b++) {
        const float* from = row.data() + b * BLOCK;
        const int64_t real = std::min(BLOCK, out.matrix.k - b * BLOCK);
        const float most = find_largest(from, real, MAX_HALF);
        const float scale = half_to_float(float_to_half(most / 127.0f));
        if (out.matrix.bits == 4) std::fill_n(u, BLOCK, uint8_t(0));
        else for (int64_t e = 0; e < BLOCK; e++) {
            const float q = scale > 0 && e < real ? std::clamp(from[e] / scale, -127.0f, 127.0f) : 0.0f;
            u[e] = uint8_t(round_to_int(q) + 128);
        }
        put_block(out, i, b, scale, -128.0f * scale, u);
    }
}

// Writes output i.
void pack(Linear& out, int64_t i, const std::vector<float>& row) {
    const int64_t panel = i / LANES, lane = i % LANES, k = out.matrix.k;
    if (out.matrix.blocks) return quantize_blocks(out, i, row);
    if (!out.matrix.bytes) {
        float* to = out.floats.get() + panel * k * LANES + lane;
        for (int64_t j = 0; j < k; j++) to[j * LANES] = row[size_t(j)];
        return;
    }
    const float most = find_largest(row.data(), k, 3.0e38f);
    const float factor = most > 0 ? 127.0f / most : 0.0f;
    out.scale[i] = most / 127.0f;
    uint8_t* to = out.bytes.get() + panel * out.matrix.quads() * 64 + lane * 4;
    for (int64_t j = 0; j < out.matrix.quads() * 4; j++)
        to[j / 4 * 64 + j % 4] = uint8_t(j < k ? round_to_int(row[size_t(j)] * factor) + 128 : 128);
}

}  // namespace

void Stored::read_row(int64_t row, float* out) const {
    const unsigned char* from = data + (in_blocks() ? 0 : row * cols * size_of(dtype));
    switch (dtype) {
        case Dtype::float32: std::memcpy(out, from, size_t(cols) * 4); break;
        case Dtype::float16:
            for (int64_t i = 0; i < cols; i++) {
                uint16_t half;
                std::memcpy(&half, from + 2 * i, 2);
                out[i] = half_to_float(half);
            }
            break;
        case Dtype::bfloat16:
            for (int64_t i = 0; i < cols; i++) {
                const uint32_t bits = (uint32_t(from[2 * i]) | uint32_t(from[2 * i + 1]) << 8) << 16;
                std::memcpy(out + i, &bits, 4);
            }
            break;
        case Dtype::int8: {
            float scale;
            std::memcpy(&scale, scales + row * 4, 4);
            for (int64_t i = 0; i < cols; i++) out[i] = float(int8_t(from[i])) * scale;
            break;
        }
        case Dtype::int8_blocks:
        case Dtype::int4_blocks: {
            uint8_t u[BLOCK];
            for (int64_t b = 0; b < cols / BLOCK; b++) {
                const auto [scale, least] = read_block(row, b, u);
                for (int64_t e = 0; e < BLOCK; e++)  // the first is exact
                    out[b * BLOCK + e] = dtype == Dtype::int8_blocks ? float(int(u[e]) - 128) * scale : float(u[e]) * scale + least;
            }
        }
    }
}

std::pair<float, float> Stored::read_block(int64_t row, int64_t block, uint8_t* out) const {
    const int64_t at = row * (cols / BLOCK) + block;
    const float scale = read_scale(scales, at, scale_dtype);
    if (dtype == Dtype::int8_blocks) {
        for (int64_t e = 0; e < BLOCK; e++) out[e] = uint8_t(data[at * BLOCK + e] ^ 0x80);  // adds 128
        return {scale, -128.0f * scale};
    }
    for (int64_t e = 0; e < BLOCK / 2; e++) {
        out[e] = data[at * BLOCK / 2 + e] & 15;
        out[e + BLOCK / 2] = data[at * BLOCK / 2 + e] >> 4;
    }
    return {scale, read_scale(minima, at, scale_dtype)};
}

int64_t plan_linear(Linear& out, int64_t k, const std::vector<Stored>& weights, Precision precision) {
    Matrix& m = out.matrix;
    m.n = 0, m.k = k;
    for (const auto& w : weights) m.n += w.rows;
    const auto int4 = [](const Stored& w) { return w.dtype == Dtype::int4_blocks; };
    m.bits = std::all_of(weights.begin(), weights.end(), int4) ? 4 : 8;
    out.precision = precision;
    const int64_t lanes = m.panels() * LANES;
    if (precision == Precision::blocks) return m.panels() * m.block_count() * m.block_bytes() + lanes * 4;
    return precision == Precision::int8 ? lanes * (round_up(k, 4) + 8) : lanes * (k + 1) * 4;
}

void pack_linear(Linear& out, const std::vector<Stored>& weights, const std::vector<std::vector<float>>& biases) {
    Matrix& m = out.matrix;
    const int64_t lanes = m.panels() * LANES, k = m.k;
    const bool biased = std::any_of(biases.begin(), biases.end(), [](const auto& b) { return !b.empty(); });
    if (out.precision == Precision::blocks) m.blocks = out.bytes.need(m.panels() * m.block_count() * m.block_bytes());
    else if (out.precision == Precision::int8) m.bytes = out.bytes.need(lanes * m.quads() * 4), m.scale = out.scale.need(lanes);
    else m.floats = out.floats.need(lanes * k);
    if (biased) m.bias = out.bias.need(lanes);
    std::vector<float> row;
    row.resize(size_t(round_up(k, BLOCK)));
    int64_t i = 0;
    for (size_t part = 0; part < weights.size(); part++)
        for (int64_t r = 0; r < weights[part].rows; r++, i++) {
            if (m.blocks && weights[part].in_blocks()) {
                copy_blocks(out, i, weights[part], r);
            } else {
                weights[part].read_row(r, row.data());
                pack(out, i, row);
            }
            if (biased) out.bias[i] = biases[part].empty() ? 0.0f : biases[part][size_t(r)];
        }
    std::fill(row.begin(), row.end(), 0.0f);
    for (; i < lanes; i++) {
        pack(out, i, row);
        if (biased) out.bias[i] = 0;
    }
}

}  // namespace regard
