#include "forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace regard {
namespace {

constexpr int64_t SHARED = 1 << 16;   // from this many bytes of weights on, the team shares a product
constexpr int64_t CHUNK = 1 << 15;    // logits that are scanned while they are in the cache
constexpr float LOWEST = -std::numeric_limits<float>::infinity();
constexpr int64_t MANY = 16;          // from this many rows on, the team shares attention
constexpr int64_t BETWEEN = 32;       // rows of attention between two looks at whether to stop
constexpr int64_t LONG = INT64_C(1) << 27;  // multiplications between two looks
constexpr int64_t MAX_FAR = INT64_C(1) << 40;

int64_t padded(int64_t n) { return round_up(n, LANES); }

Top empty_like(const Top& top, float* values, int32_t* ids) {
    Top out = top;
    out.max = LOWEST, out.sum = 0, out.count = 0, out.values = values, out.ids = ids;
    return out;
}

// Adds the result of another thread, which scanned another part of the vocabulary.
void merge(Top& into, const Top& from) {
    if (from.max > into.max) {
        into.sum = (into.max == LOWEST ? 0.0f : into.sum * std::exp(into.max - from.max)) + from.sum;
        into.max = from.max;
    } else if (from.max > LOWEST) {
        into.sum += from.sum * std::exp(from.max - into.max);
    }
    if (from.watched != 0) into.watched = from.watched;
    for (int64_t i = 0; i < from.count; i++) {
        if (into.count == into.want && from.values[i] <= into.values[into.want - 1]) break;
        int64_t at = into.count < into.want ? into.count++ : into.want - 1;
        for (; at > 0 && into.values[at - 1] < from.values[i]; at--)
            into.values[at] = into.values[at - 1], into.ids[at] = into.ids[at - 1];
        into.values[at] = from.values[i], into.ids[at] = from.ids[i];
    }
}

}  // namespace

// The activations in the form that a matrix is multiplied with; empty for a float32 matrix.
Quantized Forward::quantize(const Matrix& m, const float* x, int64_t rows, int64_t stride) {
    Quantized q;
    if (m.floats) return q;
    q.stride = m.blocks ? m.block_count() * BLOCK : round_up(m.k, 4);
    const int64_t scales = m.blocks ? rows * m.block_count() : rows;
    q.q = q_.need(rows * q.stride), q.scale = q_scale_.need(scales);
    if (m.blocks) {
        q.total = q_total_.need(scales);
        k_.quantize_blocks(x, rows, stride, m.k, q);
    } else {
        q.sum = q_sum_.need(rows);
        k_.quantize(x, rows, stride, m.k, q);
    }
    return q;
}

void Forward::multiply_panels(const Matrix& m, const float* x, const Quantized& q, int64_t rows, int64_t stride, int64_t from,
                              int64_t to, float* y, int64_t y_stride, Epilogue end) const {
    if (m.blocks) k_.multiply_blocks(q, rows, m, from, to, y, y_stride, end);
    else if (m.bytes) k_.multiply_bytes(q, rows, m, from, to, y, y_stride, end);
    else k_.multiply_floats(x, rows, stride, m, from, to, y, y_stride, end);
}

void Forward::multiply(const Linear& w, const float* x, int64_t rows, int64_t stride, float* y, int64_t y_stride,
                       Epilogue end) {
    const Matrix& m = w.matrix;
    const Quantized q = quantize(m, x, rows, stride);
    const int64_t panels = m.panels(), each = std::max<int64_t>(LONG / (rows * m.k * LANES + 1), 1);
    const auto part = [&](int64_t from, int64_t to) {
        for (; from < to && !stop_->look(); from += each)
            multiply_panels(m, x, q, rows, stride, from, std::min(from + each, to), y, y_stride, end);
    };
    if (!team_ || !shares || panels * m.panel_bytes() < SHARED) return part(0, panels);
    const int64_t n = team_->size();
    team_->run([&](int i) { part(panels * i / n, panels * (i + 1) / n); });
}

void Forward::normalize(const Norm& norm, const float* x, float* y, int64_t rows, int64_t stride, int64_t n) {
    for (int64_t i = 0; i < rows; i++) {
        const float *from = x + i * stride, *weight = norm.weight.data();
        if (norm.kind == Norm::layer)
            k_.layer_norm(from, y + i * stride, n, weight, norm.bias.empty() ? nullptr : norm.bias.data(), norm.eps);
        else
            k_.rms_norm(from, y + i * stride, n, weight, norm.eps);
    }
}

// ------------------------------------------------------------------------------------------------ positions

const float* Forward::waves(const Embedding& e, int64_t pos) {
    const int64_t d = model_.width;
    std::vector<float>& table = waves_[e.place == Embedding::halves];
    for (int64_t p = int64_t(table.size()) / d; p <= pos; p++)
        for (int64_t i = 0; i < d; i++) {
            const int64_t half = (d + 1) / 2;
            const bool cosine = e.place == Embedding::halves ? i >= half : i % 2 == 1;
            const int64_t at = e.place == Embedding::halves ? (cosine ? i - half : i) : i / 2;
            const double angle = double(p) / std::pow(10000.0, 2.0 * double(at) / double(d));
            table.push_back(float(cosine ? std::cos(angle) : std::sin(angle)));
        }
    return table.data() + pos * d;
}

void Forward::rotate(const Position& p, float* x, int64_t pos, int64_t heads, int64_t e) {
    if (turns_.size() < model_.rotaries.size()) turns_.resize(model_.rotaries.size());
    std::vector<float>& table = turns_[size_t(p.rotary_id)];
    const int64_t half = p.turned / 2;
    for (int64_t at = int64_t(table.size()) / p.turned; at <= pos; at++) {
        for (double rate : p.rates) table.push_back(float(std::cos(double(at) * rate) * double(p.factor)));
        for (double rate : p.rates) table.push_back(float(std::sin(double(at) * rate) * double(p.factor)));
    }
    const float *cosine = table.data() + pos * p.turned, *sine = cosine + half;
    for (int64_t h = 0; h < heads; h++, x += e)
        for (int64_t i = 0; i < half; i++) {
            float &a = x[p.pairs ? 2 * i : i], &b = x[p.pairs ? 2 * i + 1 : half + i];
            const float turned = a * cosine[i] - b * sine[i];
            b = a * sine[i] + b * cosine[i];
            a = turned;
        }
}

// ------------------------------------------------------------------------------------------------ attention

// All heads of one query over m keys, key i at position i. `plain`: no window and no positions (cross-attention).
void Forward::attend(const Attention& a, const float* q, Keys keys, int64_t kv_base, int64_t m, int64_t pos, bool plain,
                     float* out, Scratch& scratch) const {
    int64_t from = 0, to = m;
    const Position& p = a.position;
    if (!plain) {
        if (a.causal) to = std::min(to, pos + 1);
        if (a.reach) {
            const int64_t far = std::min(a.reach, MAX_FAR / a.dilation) * a.dilation;
            from = std::max(from, pos - far);
            to = std::min(to, pos + far + 1);
        }
    }
    const int64_t n = to - from, group = a.heads / a.kv_heads;
    float* weights = scratch.weights.need(n);
    const bool biased = !plain && (p.kind > Position::rotary || a.dilation > 1);
    float* bias = biased ? scratch.bias.need(n) : nullptr;
    for (int64_t h = 0; h < a.heads; h++) {
        const float* query = q + h * a.e;
        const auto distance = [&](int64_t i) { return std::clamp(from + i - pos, -p.reach, p.reach) + p.reach; };
        if (biased) {
            for (int64_t i = 0; i < n; i++) {
                if (p.kind == Position::alibi) bias[i] = -p.table[size_t(h)] * float(std::abs(from + i - pos));
                else if (p.kind == Position::buckets) bias[i] = p.table[size_t(distance(i) * a.heads + h)];
                else bias[i] = 0;
            }
            if (p.kind == Position::shaw) {
                const int64_t low = distance(0), high = distance(n - 1);
                float* by_distance = scratch.relative.need(2 * p.reach + 1);
                for (int64_t r = low; r <= high; r++) {
                    float total = 0;
                    for (int64_t i = 0; i < a.e; i++) total += query[i] * p.table[size_t(r * a.e + i)];
                    by_distance[r] = total * a.scale;
                }
                for (int64_t i = 0; i < n; i++) bias[i] = by_distance[distance(i)];
            }
            if (a.dilation > 1)
                for (int64_t i = 0; i < n; i++)
                    if ((from + i - pos) % a.dilation) bias[i] = LOWEST;
        }
        keys.key = kv_base + h / group * a.e;
        keys.value = keys.key + a.kv_width();
        k_.attend(query, a.e, keys, from, to, a.scale, bias, weights, out + h * a.e);
        if (!plain && p.kind == Position::shaw && !p.values.empty())
            for (int64_t i = 0; i < n; i++) k_.add_scaled(p.values.data() + distance(i) * a.e, weights[i], out + h * a.e, a.e);
    }
}

template <class F>
void Forward::each_row(int64_t rows, int64_t longest, const Attention& a, F f) {
    const size_t threads = team_ && shares && rows >= MANY ? size_t(team_->size()) : 1;
    while (scratch_.size() < threads) scratch_.push_back(std::make_unique<Scratch>());
    for (size_t i = 0; i < threads; i++) {  // allocate here, where it may fail: the team's function must not throw
        scratch_[i]->weights.need(longest), scratch_[i]->bias.need(longest);
        if (a.position.kind == Position::shaw) scratch_[i]->relative.need(2 * a.position.reach + 1);
    }
    const auto part = [&](int i) {  // interleaved, because later rows attend to more keys
        for (int64_t row = i, done = 0; row < rows; row += int64_t(threads)) {
            if (done++ % BETWEEN == 0 && stop_->look()) return;
            f(row, *scratch_[size_t(i)]);
        }
    };
    if (threads == 1) part(0);
    else team_->run(part);
}

void Forward::mix(const Part& part, const float* x, const Rows& rows, bool decoder, Epilogue end) {
    const Attention& a = part.attention;
    const int64_t n = rows.size(), width = padded(a.read.matrix.n), out_width = padded(a.q_width()), kv = a.kv_width();
    float *wide = wide_.need(n * width), *mixed = mixed_.need(n * out_width);
    multiply(a.read, x, n, stride(), wide, width, {});
    for (int64_t i = 0; i < n; i++) {
        float *q = wide + i * width, *k = q + a.q_width();
        if (a.q_norm) normalize(a.q_norm, q, q, a.heads, a.e, a.e);
        if (a.k_norm) normalize(a.k_norm, k, k, a.kv_heads, a.e, a.e);
        if (a.position.kind == Position::rotary) {
            rotate(a.position, q, rows.pos[size_t(i)], a.heads, a.e);
            rotate(a.position, k, rows.pos[size_t(i)], a.kv_heads, a.e);
        }
        if (decoder)
            std::memcpy(rows.past[size_t(i)][rows.pos[size_t(i)]] + model_.slot_offset(part.slot), k, size_t(2 * kv) * 4);
    }
    const int64_t longest = decoder ? *std::max_element(rows.pos.begin(), rows.pos.end()) + 1
                                    : *std::max_element(rows.length.begin(), rows.length.end());
    each_row(n, longest, a, [&](int64_t i, Scratch& scratch) {
        const size_t row = size_t(i);
        Keys keys;
        if (decoder) {
            keys.at = rows.past[row];
            attend(a, wide + i * width, keys, model_.slot_offset(part.slot), rows.pos[row] + 1, rows.pos[row], false,
                   mixed + i * out_width, scratch);
        } else {
            keys.base = wide + rows.first[row] * width, keys.stride = width;
            attend(a, wide + i * width, keys, a.q_width(), rows.length[row], rows.pos[row], false, mixed + i * out_width,
                   scratch);
        }
    });
    multiply(a.out, mixed, n, out_width, x_.get(), stride(), end);
}

void Forward::cross(const Part& part, const float* x, const Rows& rows, Epilogue end) {
    const Attention& a = part.attention;
    const int64_t n = rows.size(), width = padded(a.q_width()), kv = padded(2 * a.kv_width());
    float *q = wide_.need(n * width), *mixed = mixed_.need(n * width);
    multiply(a.read, x, n, stride(), q, width, {});
    int64_t longest = 0;
    for (const Memory* memory : rows.memory) longest = std::max(longest, memory->n);
    each_row(n, longest, a, [&](int64_t i, Scratch& scratch) {
        if (a.q_norm) normalize(a.q_norm, q + i * width, q + i * width, a.heads, a.e, a.e);
        const Memory& memory = *rows.memory[size_t(i)];
        Keys keys;
        keys.base = memory.base[size_t(part.slot)], keys.stride = kv;
        attend(a, q + i * width, keys, 0, memory.n, 0, true, mixed + i * width, scratch);
    });
    multiply(a.out, mixed, n, width, x_.get(), stride(), end);
}

std::vector<Memory> Forward::remember(const Rows& rows) {
    std::vector<Memory> out;
    const int64_t n = rows.size();
    int64_t width = 0;
    std::vector<const Attention*> layers;
    for (const auto& block : model_.decoder.blocks)
        for (const auto& part : block)
            if (part->role == Part::cross) {
                layers.push_back(&part->attention);
                width += padded(2 * part->attention.kv_width());
            }
    auto data = std::make_shared<Buffer<float>>(n * width);
    for (int64_t i = 0; i < n; i += rows.length[size_t(i)]) {
        out.emplace_back();
        out.back().data = data, out.back().n = rows.length[size_t(i)];
    }
    float* to = data->get();
    for (const Attention* a : layers) {
        const int64_t kv = padded(2 * a->kv_width());
        multiply(a->memory, x_.get(), n, stride(), to, kv, {});
        for (int64_t i = 0; a->k_norm && i < n; i++) normalize(a->k_norm, to + i * kv, to + i * kv, a->kv_heads, a->e, a->e);
        int64_t row = 0;
        for (Memory& memory : out) {
            memory.base.push_back(to + row * kv);
            row += memory.n;
        }
        to += n * kv;
    }
    stop_->check();
    return out;
}

// ------------------------------------------------------------------------------------------------ layers and stacks

void Forward::feed(const Part& part, const float* x, int64_t rows, Epilogue end) {
    const Feed& f = part.feed_forward;
    const int64_t width = padded(f.up.matrix.n);
    float* wide = wide_.need(rows * width);
    Epilogue up;
    up.relu = !f.gated && f.activation == Activation::relu;
    multiply(f.up, x, rows, stride(), wide, width, up);
    for (int64_t i = 0; i < rows; i++) {
        float* row = wide + i * width;
        if (f.gated) k_.gate(f.activation, row + f.width, row, f.width);
        else if (!up.relu) k_.activate(f.activation, row, f.width);
    }
    multiply(f.down, wide, rows, width, x_.get(), stride(), end);
}

void Forward::embed(const Embedding& e, const Rows& rows, int64_t vocab) {
    const int64_t n = rows.size(), d = model_.width, s = stride();
    float *x = x_.need(n * s), *other = row_.need(d);
    for (int64_t i = 0; i < n; i++, x += s) {
        const int64_t token = rows.tokens[size_t(i)], pos = rows.pos[size_t(i)];
        if (token < 0 || token >= vocab) throw Refused("a token is outside the vocabulary");
        if (token == e.zero) std::fill(x, x + d, 0.0f);
        else if (e.packed) read_output(*e.packed, token, x);
        else e.table.read_row(token, x);
        if (e.scale != 1.0f)
            for (int64_t j = 0; j < d; j++) x[j] *= e.scale;
        if (!e.segment.empty()) k_.add_scaled(e.segment.data(), 1.0f, x, d);
        if (e.place == Embedding::learned) {
            if (pos + e.shift >= e.places.rows) throw Refused("a text is longer than the model has positions");
            e.places.read_row(pos + e.shift, other);
            k_.add_scaled(other, 1.0f, x, d);
        } else if (e.place != Embedding::none) {
            k_.add_scaled(waves(e, pos), 1.0f, x, d);
        }
        std::fill(x + d, x + s, 0.0f);
    }
    if (e.norm) normalize(e.norm, x_.get(), x_.get(), n, s, d);
}

void Forward::run(const Stack& stack, const Rows& rows, bool decoder) {
    const int64_t n = rows.size(), s = stride(), d = model_.width;
    if (!n) return;
    float *x = x_.get(), *y = y_.need(n * s);
    for (const auto& block : stack.blocks)
        for (const auto& part : block) {
            const float* read = x;
            if (stack.wiring == Stack::pre || (stack.wiring == Stack::parallel && part == block.front()))
                normalize(part->norm, x, y, n, s, d);
            if (stack.wiring == Stack::pre || stack.wiring == Stack::parallel) read = y;
            Epilogue end;
            end.add = stack.wiring != Stack::bare;
            if (part->role == Part::mix) mix(*part, read, rows, decoder, end);
            else if (part->role == Part::cross) cross(*part, read, rows, end);
            else feed(*part, read, n, end);
            if (stack.wiring == Stack::post) normalize(part->norm, x, x, n, s, d);
            stop_->check();
        }
    if (stack.norm) normalize(stack.norm, x, x, n, s, d);
}

void Forward::encode(const Rows& rows) {
    embed(model_.source, rows, model_.source_vocab);
    run(model_.encoder, rows, false);
}

void Forward::decode(const Rows& rows) {
    embed(model_.embed, rows, model_.vocab);
    run(model_.decoder, rows, true);
}

void Forward::score(const Linear& head, const int64_t* which, Top* tops, int64_t n, float* logits) {
    const int64_t s = stride(), d = model_.width;
    const Matrix& m = head.matrix;
    float* x = y_.need(n * s);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < d; j++) x[i * s + j] = x_[which[i] * s + j] * model_.head_scale;
    const Quantized q = quantize(m, x, n, s);
    // Computes the logits a few panels at a time, and scans them at once.
    const int64_t panels = m.panels(), each = std::clamp<int64_t>(CHUNK / LANES / std::max<int64_t>(n, 1), 8, 64);
    const auto part = [&](int64_t begin, int64_t end, float* chunk, Top* found) {
        for (int64_t from = begin; from < end && !stop_->look(); from += each) {
            const int64_t to = std::min(from + each, end), first = from * LANES, width = (to - from) * LANES;
            Epilogue here;
            here.origin = from;
            multiply_panels(m, x, q, n, s, from, to, chunk, width, here);
            const int64_t real = std::min(width, m.n - first);
            for (int64_t i = 0; i < n; i++) {
                k_.scan(chunk + i * width, real, first, found[i]);
                if (logits) std::memcpy(logits + i * m.n + first, chunk + i * width, size_t(real) * 4);
            }
        }
    };
    for (int64_t i = 0; i < n; i++) tops[i].max = LOWEST, tops[i].sum = 0, tops[i].count = 0, tops[i].watched = 0;
    if (!team_ || !shares || panels * m.panel_bytes() < SHARED) {
        part(0, panels, chunk_.need(n * each * LANES), tops);
        return stop_->check();
    }
    const int64_t threads = team_->size();
    while (int64_t(parts_.size()) < threads) parts_.push_back(std::make_unique<Share>());
    for (auto& share : parts_) {
        share->chunk.need(n * each * LANES);
        int64_t wanted = 0;
        for (int64_t i = 0; i < n; i++) wanted += tops[i].want;
        float* values = share->values.need(wanted);
        int32_t* ids = share->ids.need(wanted);
        share->tops.clear();
        for (int64_t i = 0; i < n; i++) {
            share->tops.push_back(empty_like(tops[i], values, ids));
            values += tops[i].want, ids += tops[i].want;
        }
    }
    team_->run([&](int i) {
        Share& share = *parts_[size_t(i)];
        part(panels * i / threads, panels * (i + 1) / threads, share.chunk.get(), share.tops.data());
    });
    stop_->check();
    for (int64_t i = 0; i < n; i++)
        for (auto& share : parts_) merge(tops[i], share->tops[size_t(i)]);
}

}  // namespace regard
