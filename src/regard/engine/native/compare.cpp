// Compares every kernel that this processor runs with its portable twin, on random numbers: compare [SEED].
//
// tests/engine/emulate.py also compiles it for ARM and runs it under an emulator.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "weights.h"

using namespace regard;

namespace {

std::mt19937_64 rng;
int64_t compared = 0, wrong = 0;

int64_t below(int64_t n) { return int64_t(rng() % uint64_t(n)); }
std::vector<float> draw(int64_t n, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = normal(rng);
    return out;
}

void check(const char* kernels, const char* what, const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
    compared++;
    for (size_t i = 0; i < a.size(); i++) {
        if (std::fabs(a[i] - b[i]) <= tolerance * (1 + std::fabs(b[i]))) continue;
        std::printf("%s: %s differs at %zu: %g, should be %g\n", kernels, what, i, double(a[i]), double(b[i]));
        wrong++;
        return;
    }
}

// A product of some rows with a random matrix in one precision; `bits`: of the numbers in blocks.
void compare_product(const Kernels& k, const Kernels& plain, Precision precision, int bits) {
    const int64_t n = 1 + below(90), rows = 1 + below(11), inputs = bits == 4 ? BLOCK * (1 + below(4)) : 1 + below(150);
    const std::vector<float> weight = draw(n * inputs, 0.2f), x = draw(rows * inputs), bias = draw(n);
    std::vector<unsigned char> packed(size_t(n * inputs / 2 + 1));
    std::vector<float> scales(size_t(n * (inputs / BLOCK + 1)), 0.01f), minima(scales.size(), -0.08f);
    for (auto& byte : packed) byte = static_cast<unsigned char>(rng());
    Stored stored;
    stored.rows = n, stored.cols = inputs, stored.data = reinterpret_cast<const unsigned char*>(weight.data());
    if (bits == 4) {
        stored.dtype = Dtype::int4_blocks, stored.data = packed.data();
        stored.scales = reinterpret_cast<const unsigned char*>(scales.data());
        stored.minima = reinterpret_cast<const unsigned char*>(minima.data());
    }
    Linear linear;
    plan_linear(linear, inputs, {stored}, precision);
    pack_linear(linear, {stored}, {below(2) ? bias : std::vector<float>()});
    const Matrix& m = linear.matrix;
    const int64_t width = m.panels() * LANES, from = below(m.panels());
    Epilogue end;
    end.add = below(2), end.relu = below(2), end.origin = below(2) ? from : 0;
    const std::vector<float> before = draw(rows * width);
    std::vector<float> out[2];
    int which = 0;
    for (const Kernels* each : {&k, &plain}) {
        std::vector<float>& y = out[which++];
        y = before;
        const int64_t stride = round_up(inputs, BLOCK), count = m.block_count();
        std::vector<int8_t> q(size_t(rows * stride));
        std::vector<float> scale(size_t(rows * count)), total(scale.size());
        std::vector<int32_t> sum(static_cast<size_t>(rows));
        Quantized quantized{q.data(), stride, scale.data(), sum.data(), total.data()};
        // both read what the portable kernel quantized: a number halfway between two steps may be rounded either way
        if (m.blocks) plain.quantize_blocks(x.data(), rows, inputs, inputs, quantized);
        else if (m.bytes) plain.quantize(x.data(), rows, inputs, inputs, quantized);
        if (m.blocks) each->multiply_blocks(quantized, rows, m, from, m.panels(), y.data(), width, end);
        else if (m.bytes) each->multiply_bytes(quantized, rows, m, from, m.panels(), y.data(), width, end);
        else each->multiply_floats(x.data(), rows, inputs, m, from, m.panels(), y.data(), width, end);
    }
    const char* names[] = {"multiply_floats", "multiply_bytes", bits == 4 ? "multiply_blocks of 4 bits" : "multiply_blocks of 8 bits"};
    check(k.name, names[int(precision)], out[0], out[1], 1e-4f);
}

void compare_quantized(const Kernels& k, const Kernels& plain) {
    const int64_t rows = 1 + below(5), n = 1 + below(200), stride = round_up(n, BLOCK), count = stride / BLOCK;
    std::vector<float> x = draw(rows * n, below(4) ? 1.0f : 1e-38f);  // some are below TINY
    for (float& each : x)
        if (below(8) == 0) each = 0;
    std::vector<float> back[2][2];
    int which = 0;
    for (const Kernels* each : {&k, &plain}) {
        std::vector<int8_t> q(size_t(rows * stride), 0);
        std::vector<float> scale(size_t(rows * count)), total(scale.size());
        std::vector<int32_t> sum(static_cast<size_t>(rows));
        Quantized out{q.data(), stride, scale.data(), sum.data(), total.data()};
        for (int blocks = 0; blocks < 2; blocks++) {
            if (blocks) each->quantize_blocks(x.data(), rows, n, n, out);
            else each->quantize(x.data(), rows, n, n, out);
            for (int64_t row = 0; row < rows; row++) {
                int32_t found = 0;
                for (int64_t i = 0; i < n; i++) {
                    const float step = scale[size_t(blocks ? row * count + i / BLOCK : row)];
                    found += q[size_t(row * stride + i)];
                    const float was = x[size_t(row * n + i)], off = std::fabs(float(q[size_t(row * stride + i)]) * step - was);
                    back[blocks][which].push_back(off <= 0.501f * step || (was != 0 && std::fabs(was) <= TINY));
                }
                if (!blocks) back[blocks][which].push_back(found == sum[size_t(row)]);
            }
        }
        which++;
    }
    for (int blocks = 0; blocks < 2; blocks++) {  // every number is within half a step of what it was
        check(k.name, blocks ? "quantize_blocks" : "quantize", back[blocks][0], std::vector<float>(back[blocks][0].size(), 1.0f), 0);
        check(plain.name, blocks ? "quantize_blocks" : "quantize", back[blocks][1], std::vector<float>(back[blocks][1].size(), 1.0f), 0);
    }
}

void compare_rows(const Kernels& k, const Kernels& plain) {
    const int64_t n = 1 + below(100);
    const std::vector<float> x = draw(n, 3), weight = draw(n), bias = draw(n);
    std::vector<float> a(static_cast<size_t>(n)), b(a);
    const float* shift = below(2) ? bias.data() : nullptr;
    k.layer_norm(x.data(), a.data(), n, weight.data(), shift, 1e-5f);
    plain.layer_norm(x.data(), b.data(), n, weight.data(), shift, 1e-5f);
    if (n > 1) check(k.name, "layer_norm", a, b, 1e-4f);
    k.rms_norm(x.data(), a.data(), n, weight.data(), 1e-5f), plain.rms_norm(x.data(), b.data(), n, weight.data(), 1e-5f);
    check(k.name, "rms_norm", a, b, 1e-4f);
    for (int kind = 0; kind <= int(Activation::tanh); kind++) {
        a = b = x;
        k.activate(Activation(kind), a.data(), n), plain.activate(Activation(kind), b.data(), n);
        check(k.name, "activate", a, b, 1e-5f);
        a = b = weight;
        k.gate(Activation(kind), x.data(), a.data(), n), plain.gate(Activation(kind), x.data(), b.data(), n);
        check(k.name, "gate", a, b, 1e-5f);
    }
    a = b = bias;
    k.add_scaled(x.data(), 0.3f, a.data(), n), plain.add_scaled(x.data(), 0.3f, b.data(), n);
    check(k.name, "add_scaled", a, b, 1e-5f);
}

void compare_attention(const Kernels& k, const Kernels& plain) {
    const int64_t e = 1 + below(70), m = 1 + below(40), from = below(m), to = from + below(m - from + 1);
    const std::vector<float> q = draw(e), data = draw(m * 2 * e), bias = draw(m);
    std::vector<const float*> pointers;
    for (int64_t i = 0; i < m; i++) pointers.push_back(data.data() + i * 2 * e);
    Keys keys;
    if (below(2)) keys.at = pointers.data();
    else keys.base = data.data(), keys.stride = 2 * e;
    keys.value = e;
    std::vector<float> weights[2], out[2];
    int which = 0;
    for (const Kernels* each : {&k, &plain}) {
        weights[which].resize(size_t(m)), out[which].resize(size_t(e));
        each->attend(q.data(), e, keys, from, to, 0.3f, bias.data(), weights[which].data(), out[which].data());
        which++;
    }
    check(k.name, "attend", out[0], out[1], 1e-5f);
    check(k.name, "the weights of attend", weights[0], weights[1], 1e-5f);
}

void compare_scan(const Kernels& k, const Kernels& plain) {
    const int64_t n = 1 + below(200), want = below(9), cut = below(n + 1);
    const std::vector<float> logits = draw(n, 4);
    std::vector<uint8_t> banned(static_cast<size_t>(n));
    for (auto& each : banned) each = below(5) == 0;
    const std::vector<int32_t> also = {int32_t(below(n)), int32_t(below(n))};
    std::vector<float> found[2];
    int which = 0;
    for (const Kernels* each : {&k, &plain}) {
        std::vector<float> values(size_t(want + 1));
        std::vector<int32_t> ids(size_t(want + 1));
        Top top{};
        top.max = -INFINITY, top.want = want, top.values = values.data(), top.ids = ids.data(), top.banned = banned.data();
        top.also = also.data(), top.n_also = 2, top.watch = int32_t(n / 2);
        each->scan(logits.data(), cut, 0, top);  // in two pieces
        each->scan(logits.data() + cut, n - cut, cut, top);
        std::vector<float>& out = found[which++];
        out = {top.max, std::log(top.sum), top.watched, float(top.count)};
        for (int64_t i = 0; i < top.count; i++) out.push_back(values[size_t(i)]), out.push_back(float(ids[size_t(i)]));
    }
    check(k.name, "scan", found[0], found[1], 1e-5f);
}

}  // namespace

int main(int argc, char** argv) {
    rng.seed(argc > 1 ? uint64_t(std::atoll(argv[1])) : 1);
    int count;
    const Choice* all = list_kernels(&count);
    const Kernels& plain = *all[count - 1].kernels;
    std::string names;
    for (int i = 0; i + 1 < count; i++) {
        if (!all[i].supported()) continue;
        const Kernels& k = *all[i].kernels;
        names += std::string(names.empty() ? "" : " ") + k.name;
        for (int round = 0; round < 60; round++) {
            compare_product(k, plain, Precision::float32, 8), compare_product(k, plain, Precision::int8, 8);
            compare_product(k, plain, Precision::blocks, 8), compare_product(k, plain, Precision::blocks, 4);
            compare_quantized(k, plain), compare_rows(k, plain), compare_attention(k, plain), compare_scan(k, plain);
        }
    }
    std::printf("%s: %lld comparisons, %lld differ\n", names.empty() ? "none" : names.c_str(), (long long)compared, (long long)wrong);
    return wrong != 0;
}
