#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#endif

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

// Rounds to nearest, ties to even; |x| ≤ 65504.
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

constexpr int64_t RELEASED = 1 << 18;  // bytes of a memory map that are released at once

// Releases the whole pages of a part of a memory map, whose contents are lost.
void release_pages(const unsigned char* data, int64_t bytes) {
#if defined(__unix__) || defined(__APPLE__)
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE)), begin = uintptr_t(data), end = begin + uintptr_t(bytes);
    const uintptr_t from = (begin + page - 1) / page * page, to = end / page * page;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
#else
    (void)data, (void)bytes;
#endif
}

// Rounds |x| < 2^22 to the nearest integer, ties to even.
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

// Uses the weights in place if they are packed as this map needs them, one right after the other; returns whether it does.
bool use_panels(Linear& out, const std::vector<Stored>& weights) {
    Matrix& m = out.matrix;
    const Stored& first = weights.front();
    if (!first.in_panels() || first.in_blocks() != (out.precision == Precision::blocks) || out.precision == Precision::float32)
        return false;
    const unsigned char *data = first.data, *scales = first.scales;
    for (const Stored& w : weights) {
        const bool last = &w == &weights.back();
        if (w.dtype != first.dtype || w.data != data || w.scales != scales || (!last && w.rows % LANES)) return false;
        const Matrix each = w.as_matrix();
        data += each.panels() * each.panel_bytes();
        if (scales) scales += each.panels() * LANES * 4;
    }
    if (reinterpret_cast<uintptr_t>(first.scales) % alignof(float)) return false;
    const Matrix whole = first.as_matrix();
    m.bytes = whole.bytes, m.blocks = whole.blocks, m.bits = whole.bits, m.scale = whole.scale;
    for (int64_t b = 0; m.blocks && b < m.panels() * m.block_count(); b++)
        for (int64_t i = 0; i < 2 * LANES; i++) {
            uint16_t half;
            std::memcpy(&half, m.blocks + b * m.block_bytes() + 2 * i, 2);
            if ((half & 0x7C00) == 0x7C00) throw Refused("a weight is too large, or not a number");
        }
    return true;
}

void copy_blocks(Linear& out, int64_t i, const Stored& from, int64_t row) {
    uint8_t u[BLOCK];
    for (int64_t b = 0; b < out.matrix.block_count(); b++) {
        const auto [scale, least] = from.read_block(row, b, u);
        put_block(out, i, b, scale, least, u);
    }
}

// Quantizes to 8 bits. In a 4-bit matrix only the padding after the last output comes here, which is zero. The row is padded
// with zeros to whole blocks.
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
    const float factor = most > TINY ? 127.0f / most : 0.0f;
    out.scale[i] = most / 127.0f;
    uint8_t* to = out.bytes.get() + panel * out.matrix.quads() * 64 + lane * 4;
    for (int64_t j = 0; j < out.matrix.quads() * 4; j++)
        to[j / 4 * 64 + j % 4] = uint8_t(j < k ? round_to_int(row[size_t(j)] * factor) + 128 : 128);
}

}  // namespace

bool has_nan(const unsigned char* data, int64_t count, Dtype dtype) {
    // Without their sign, the bits of a NaN are above those of infinity. No branches, so that the loops vectorize.
    bool found = false;
    if (dtype == Dtype::float32) {
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits;
            std::memcpy(&bits, data + 4 * i, 4);
            found |= (bits & 0x7FFFFFFF) > 0x7F800000;
        }
        return found;
    }
    const uint16_t infinity = dtype == Dtype::float16 ? 0x7C00 : 0x7F80;
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, 2);
        found |= (bits & 0x7FFF) > infinity;
    }
    return found;
}

void read_output(const Matrix& m, int64_t output, float* out) {
    const float* from = m.floats + output / LANES * m.k * LANES + output % LANES;
    for (int64_t i = 0; i < m.k; i++) out[i] = from[i * LANES];
}

Matrix Stored::as_matrix() const {
    Matrix m;
    m.n = rows, m.k = cols, m.bits = int4() ? 4 : 8;
    if (in_blocks()) m.blocks = data;
    else m.bytes = data, m.scale = reinterpret_cast<const float*>(scales);
    return m;
}

void Stored::read_row(int64_t row, float* out) const {
    const unsigned char* from = data + (in_blocks() || in_panels() ? 0 : row * cols * size_of(dtype));
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
        case Dtype::int8_panels: {
            float scale;
            std::memcpy(&scale, scales + row * 4, 4);
            from += row / LANES * round_up(cols, 4) * LANES + row % LANES * 4;
            for (int64_t i = 0; i < cols; i++) out[i] = float(int(from[i / 4 * 64 + i % 4]) - 128) * scale;
            break;
        }
        default: {
            uint8_t u[BLOCK];
            for (int64_t b = 0; b < cols / BLOCK; b++) {
                const auto [scale, least] = read_block(row, b, u);
                for (int64_t e = 0; e < BLOCK; e++)  // with 8 bits, subtracting 128 first is exact
                    out[b * BLOCK + e] = int4() ? float(u[e]) * scale + least : float(int(u[e]) - 128) * scale;
            }
        }
    }
}

std::pair<float, float> Stored::read_block(int64_t row, int64_t block, uint8_t* out) const {
    if (in_panels()) {
        const Matrix m = as_matrix();
        const unsigned char* from = data + (row / LANES * m.block_count() + block) * m.block_bytes();
        const int64_t lane = row % LANES, half = BLOCK / 8;
        const float scale = read_scale(from, lane, Dtype::float16), least = read_scale(from, LANES + lane, Dtype::float16);
        from += 4 * LANES + lane * 4;
        for (int64_t e = 0; e < BLOCK; e++) {
            const int64_t quad = e / 4, byte = e % 4;
            if (!int4()) out[e] = from[quad * 64 + byte];
            else out[e] = quad < half ? from[quad * 64 + byte] & 15 : from[(quad - half) * 64 + byte] >> 4;
        }
        return {scale, least};
    }
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
    m.bits = std::all_of(weights.begin(), weights.end(), [](const Stored& w) { return w.int4(); }) ? 4 : 8;
    out.precision = precision;
    const int64_t lanes = m.panels() * LANES;
    if (precision == Precision::blocks) return m.panels() * m.block_count() * m.block_bytes() + lanes * 4;
    return precision == Precision::int8 ? lanes * (round_up(k, 4) + 8) : lanes * (k + 1) * 4;
}

void pack_linear(Linear& out, const std::vector<Stored>& weights, const std::vector<std::vector<float>>& biases) {
    Matrix& m = out.matrix;
    const int64_t lanes = m.panels() * LANES, k = m.k;
    if (std::any_of(biases.begin(), biases.end(), [](const auto& b) { return !b.empty(); })) {
        float* to = out.bias.need(lanes);
        m.bias = to;
        std::fill(to, to + lanes, 0.0f);
        for (size_t part = 0; part < weights.size(); to += weights[part++].rows)
            std::copy(biases[part].begin(), biases[part].end(), to);
    }
    if (use_panels(out, weights)) return;
    if (out.precision == Precision::blocks) m.blocks = out.bytes.need(m.panels() * m.block_count() * m.block_bytes());
    else if (out.precision == Precision::int8) m.bytes = out.bytes.need(lanes * m.quads() * 4), m.scale = out.scale.need(lanes);
    else m.floats = out.floats.need(lanes * k);
    std::vector<float> row(size_t(round_up(k, BLOCK)), 0.0f);
    int64_t i = 0;
    for (const Stored& weight : weights) {
        const int64_t bytes = weight.cols * size_of(weight.dtype), few = std::max<int64_t>(RELEASED / bytes, 1);
        for (int64_t r = 0; r < weight.rows; r++, i++) {
            if (m.blocks && weight.in_blocks()) {
                copy_blocks(out, i, weight, r);
                continue;
            }
            weight.read_row(r, row.data());
            pack(out, i, row);
            const bool last = r + 1 == weight.rows, rows = weight.dtype <= Dtype::bfloat16;
            if (weight.single && rows && (last || r % few == few - 1))
                release_pages(weight.data + r / few * few * bytes, (r % few + 1) * bytes);
        }
    }
    std::fill(row.begin(), row.end(), 0.0f);
    for (; i < lanes; i++) pack(out, i, row);
}

}  // namespace regard
