// Reads plans, and trusts nothing in them: every count has bounds, every tensor must have the expected shape and lie inside the
// weights file. Memory is allocated only after these checks.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace regard {
namespace {

// MAX_WIDTH products of at most 255 · 127 fit into 32 bits.
constexpr int64_t FORMAT = 1, MAX_WIDTH = 1 << 16, MAX_VOCAB = 1 << 24, MAX_DEPTH = 1000, MAX_HEADS = 4096,
                  MAX_REACH = 1 << 20, MAX_TIES = 4, SPARE = 1 << 26, SINGLE = 16;

class Reader {
  public:
    Reader(const double* plan, int64_t words, const unsigned char* weights, int64_t bytes, bool mapped, Model& model,
           Precision precision)
        : plan_(plan), words_(words), weights_(weights), bytes_(bytes), mapped_(mapped), model_(model), precision_(precision) {}

    double number(const char* what, double low, double high) {
        if (at_ >= words_) throw Refused(std::string("the plan ends before ") + what);
        const double value = plan_[at_++];
        if (!(value >= low && value <= high)) throw Refused(std::string(what) + " is out of range in the plan");
        return value;
    }
    int64_t count(const char* what, int64_t low, int64_t high) {
        const double value = number(what, double(low), double(high));
        if (value != std::floor(value)) throw Refused(std::string(what) + " is not a whole number in the plan");
        return int64_t(value);
    }
    bool flag(const char* what) { return count(what, 0, 1) != 0; }
    void end() {
        if (at_ != words_) throw Refused("the plan has more numbers than the model needs");
    }

    // Reads the place of a tensor, which must have this shape; empty if it is optional and absent.
    Stored tensor(const char* what, int64_t rows, int64_t cols, bool optional = false) {
        const int64_t offset = count(what, -1, INT64_C(1) << 50);
        Stored out;
        if (offset < 0) {
            if (!optional) throw Refused(std::string(what) + " is missing in the plan");
            return out;
        }
        const int64_t type = count(what, 0, SINGLE + 8);  // marked if nothing else reads this weight
        if (type % SINGLE > 8) throw Refused(std::string(what) + " has an unknown type in the plan");
        out.dtype = Dtype(type % SINGLE), out.single = mapped_ && type >= SINGLE;
        out.rows = count(what, 0, MAX_VOCAB), out.cols = count(what, 1, MAX_VOCAB);
        if (out.in_panels()) return panels(what, offset, out, rows, cols);
        if (out.rows != rows || out.cols != cols)
            throw Refused(std::string(what) + " should be " + std::to_string(rows) + " × " + std::to_string(cols) +
                          ", is " + std::to_string(out.rows) + " × " + std::to_string(out.cols));
        const bool int4 = out.int4();
        if (out.in_blocks() && cols % BLOCK) throw Refused(std::string(what) + " has rows that are no whole blocks");
        out.data = inside(what, offset, int4 ? rows * cols / 2 : rows * cols, size_of(out.dtype));
        if (out.dtype == Dtype::int8) out.scales = inside(what, count(what, 0, INT64_C(1) << 50), rows, 4);
        if (!out.in_blocks()) return out;
        out.scale_dtype = Dtype(count(what, 0, 1));
        out.scales = inside(what, count(what, 0, INT64_C(1) << 50), rows * (cols / BLOCK), size_of(out.scale_dtype));
        if (int4) out.minima = inside(what, count(what, 0, INT64_C(1) << 50), rows * (cols / BLOCK), size_of(out.scale_dtype));
        return out;
    }

    std::vector<float> vector(const char* what, int64_t n, bool optional = false) {
        const Stored stored = tensor(what, 1, n, optional);
        std::vector<float> out;
        if (stored) {
            claim(n * 4);
            out.resize(size_t(n));
            stored.read_row(0, out.data());
        }
        return out;
    }
    std::vector<float> table(const char* what, int64_t rows, int64_t cols, bool optional = false) {
        const Stored stored = tensor(what, rows, cols, optional);
        std::vector<float> out;
        if (stored) {
            claim(rows * cols * 4);
            out.resize(size_t(rows * cols));
            for (int64_t i = 0; i < rows; i++) stored.read_row(i, out.data() + i * cols);
        }
        return out;
    }

    // Packs several linear maps with the same input into one.
    void linear(Linear& out, int64_t k, const std::vector<Stored>& weights, const std::vector<std::vector<float>>& biases) {
        claim(plan_linear(out, k, weights, precision_));
        pack_linear(out, weights, biases);
    }

    Norm norm(const char* what, int64_t n) {
        Norm out;
        out.kind = Norm::Kind(count(what, 0, 2));
        if (!out) return out;
        out.eps = float(number(what, 0, 1));
        out.weight = vector(what, n);
        out.bias = vector(what, n, true);
        return out;
    }

    Model& model() { return model_; }
    void claim(int64_t bytes) {
        model_.bytes += bytes;
        if (model_.bytes > MAX_TIES * 4 * bytes_ + SPARE)
            throw Refused("the plan uses the same weights too often for a file of this size");
    }

  private:
    // A weight that is already packed: the plan has its padded rows and columns.
    Stored panels(const char* what, int64_t offset, Stored out, int64_t rows, int64_t cols) {
        const int64_t unit = out.in_blocks() ? BLOCK : 4;
        if (out.rows != round_up(rows, LANES) || out.cols != round_up(cols, unit) || (out.in_blocks() && cols % BLOCK))
            throw Refused(std::string(what) + " should be " + std::to_string(rows) + " × " + std::to_string(cols) +
                          ", is packed for " + std::to_string(out.rows) + " × " + std::to_string(out.cols));
        const int64_t block = 4 * LANES + LANES * BLOCK * (out.int4() ? 4 : 8) / 8;
        out.data = inside(what, offset, out.rows / LANES, out.in_blocks() ? out.cols / BLOCK * block : out.cols * LANES);
        if (!out.in_blocks()) out.scales = inside(what, count(what, 0, INT64_C(1) << 50), out.rows, 4);
        out.rows = rows, out.cols = cols;
        return out;
    }
    const unsigned char* inside(const char* what, int64_t offset, int64_t elements, int64_t size) {
        if (offset > bytes_ || elements > (bytes_ - offset) / size)
            throw Refused(std::string(what) + " lies outside the weights file");
        return weights_ + offset;
    }

    const double* plan_;
    int64_t words_, at_ = 0;
    const unsigned char* weights_;
    int64_t bytes_;
    bool mapped_;
    Model& model_;
    Precision precision_;
};

void read_embedding(Reader& in, Embedding& out, int64_t vocab, int64_t width) {
    out.table = in.tensor("an embedding", vocab, width);
    out.scale = float(in.number("an embedding's scale", -1e6, 1e6));
    out.zero = in.count("a token without a vector", -1, vocab - 1);
    out.place = Embedding::Place(in.count("a position code", 0, 3));
    if (out.place == Embedding::learned) {
        out.shift = in.count("a shift of positions", 0, MAX_REACH);
        const int64_t rows = in.count("a number of positions", 1, MAX_VOCAB);
        if (out.shift >= rows) throw Refused("the shift of positions leaves none");
        out.places = in.tensor("a table of positions", rows, width);
    }
    out.segment = in.vector("a segment", width, true);
    out.norm = in.norm("the norm of an embedding", width);
}

void read_position(Reader& in, Attention& a) {
    Position& out = a.position;
    out.kind = Position::Kind(in.count("a position code", 0, 4));
    if (out.kind == Position::rotary) {
        out.pairs = in.flag("the layout of rotary positions");
        out.turned = 2 * in.count("rotary pairs", 1, a.e / 2);
        out.factor = float(in.number("a rotary factor", 0, 1e6));
        for (int64_t i = 0; i < out.turned / 2; i++) out.rates.push_back(in.number("a rotary rate", 0, 1e6));
        auto& known = in.model().rotaries;  // layers that rotate alike share a table
        const auto same = [&](const Position* p) { return p->rates == out.rates && p->factor == out.factor; };
        const auto found = std::find_if(known.begin(), known.end(), same);
        out.rotary_id = found - known.begin();
        if (found == known.end()) known.push_back(&out);
    } else if (out.kind == Position::alibi) {
        for (int64_t i = 0; i < a.heads; i++) out.table.push_back(float(in.number("a slope", 0, 1e6)));
    } else if (out.kind == Position::buckets) {
        out.reach = in.count("a reach of buckets", 1, MAX_REACH);
        const int64_t buckets = in.count("a number of buckets", 1, MAX_REACH);
        const std::vector<float> weight = in.table("a table of buckets", buckets, a.heads);
        in.claim((2 * out.reach + 1) * a.heads * 4);
        for (int64_t i = 0; i <= 2 * out.reach; i++) {
            const int64_t b = in.count("a bucket", 0, buckets - 1);
            out.table.insert(out.table.end(), weight.begin() + b * a.heads, weight.begin() + (b + 1) * a.heads);
        }
    } else if (out.kind == Position::shaw) {
        out.reach = in.count("a reach of relative positions", 1, MAX_REACH);
        out.table = in.table("relative keys", 2 * out.reach + 1, a.e);
        out.values = in.table("relative values", 2 * out.reach + 1, a.e, true);
    }
}

void read_attention(Reader& in, Attention& a, bool cross) {
    const int64_t d = in.model().width;
    a.heads = in.count("heads", 1, MAX_HEADS);
    a.kv_heads = in.count("kv_heads", 1, a.heads);
    if (a.heads % a.kv_heads) throw Refused("kv_heads does not divide heads in the plan");
    a.e = in.count("the width of a head", 1, MAX_WIDTH);
    if (a.q_width() > MAX_WIDTH) throw Refused("the heads are too wide");
    a.scale = float(in.number("a scale of scores", -1e6, 1e6));
    const Stored q = in.tensor("queries", a.q_width(), d), k = in.tensor("keys", a.kv_width(), d),
                 v = in.tensor("values", a.kv_width(), d), o = in.tensor("attention's output", d, a.q_width());
    std::vector<float> qb = in.vector("queries' bias", a.q_width(), true), kb = in.vector("keys' bias", a.kv_width(), true),
                       vb = in.vector("values' bias", a.kv_width(), true), ob = in.vector("the output's bias", d, true);
    if (cross) {
        in.linear(a.read, d, {q}, {qb});
        in.linear(a.memory, d, {k, v}, {kb, vb});
    } else {
        in.linear(a.read, d, {q, k, v}, {qb, kb, vb});
    }
    in.linear(a.out, a.q_width(), {o}, {ob});
    a.q_norm = in.norm("the norm of queries", a.e);
    a.k_norm = in.norm("the norm of keys", a.e);
    if (cross) return;
    a.causal = in.flag("causal");
    a.reach = in.count("a window", 0, INT64_C(1) << 40);
    a.dilation = in.count("a dilation", 1, INT64_C(1) << 40);
    read_position(in, a);
}

void read_feed(Reader& in, Feed& f) {
    const int64_t d = in.model().width;
    f.width = in.count("a feed-forward width", 1, MAX_WIDTH);
    f.activation = Activation(in.count("an activation", 0, 5));
    f.gated = in.flag("gated");
    const Stored up = in.tensor("up", f.width, d);
    std::vector<float> up_bias = in.vector("up's bias", f.width, true), gate_bias;
    if (f.gated) {
        const Stored gate = in.tensor("gate", f.width, d);
        gate_bias = in.vector("gate's bias", f.width, true);
        in.linear(f.up, d, {up, gate}, {up_bias, gate_bias});
    } else {
        in.linear(f.up, d, {up}, {up_bias});
    }
    const Stored down = in.tensor("down", d, f.width);
    in.linear(f.down, f.width, {down}, {in.vector("down's bias", d, true)});
}

void read_stack(Reader& in, Stack& out, bool decoder) {
    Model& model = in.model();
    out.wiring = Stack::Wiring(in.count("a wiring", 0, 3));
    out.blocks.resize(size_t(in.count("a number of blocks", 1, MAX_DEPTH)));
    for (auto& block : out.blocks) {
        block.resize(size_t(in.count("the parts of a block", 1, 3)));
        for (auto& part : block) {
            part = std::make_unique<Part>();
            part->role = Part::Role(in.count("a role", 0, 2));
            part->norm = in.norm("the norm of a layer", model.width);
            if (part->role == Part::feed) {
                read_feed(in, part->feed_forward);
                continue;
            }
            const bool cross = part->role == Part::cross;
            if (cross && !(decoder && model.has_encoder)) throw Refused("cross-attention needs a decoder with an encoder");
            Attention& a = part->attention;
            read_attention(in, a, cross);
            if (cross) {
                part->slot = out.crosses++;
                continue;
            }
            if (decoder && !a.causal) throw Refused("a decoder's attention should be causal");
            part->slot = out.mixes++;
            if (!decoder) continue;
            model.slot = std::max(model.slot, round_up(2 * a.kv_width(), LANES));
        }
        const bool bare = out.wiring == Stack::bare, parallel = out.wiring == Stack::parallel;
        for (size_t i = 0; i < block.size(); i++)
            if (bool(block[i]->norm) != (!bare && (!parallel || i == 0)))
                throw Refused("a layer has a norm that its wiring does not use, or lacks one");
    }
    out.norm = in.norm("the last norm", model.width);
}

// Whether two tensors are the same matrix of the file; the same first byte is not enough.
bool is_same(const Stored& a, const Stored& b) {
    return a.data == b.data && a.dtype == b.dtype && a.rows == b.rows && a.cols == b.cols;
}

}  // namespace

int64_t Model::room(bool of_source) const {
    const Embedding& e = of_source ? source : embed;
    return e.place == Embedding::learned ? e.places.rows - e.shift : -1;
}

std::unique_ptr<Model> read_model(const double* plan, int64_t words, const unsigned char* weights, int64_t bytes,
                                  bool mapped, Precision precision, const Kernels* kernels) {
    auto model = std::make_unique<Model>();
    Reader in(plan, words, weights, bytes, mapped, *model, precision);
    if (in.count("the format", 0, 1 << 20) != FORMAT) throw Refused("the plan has a format that this engine does not read");
    model->kernels = kernels;
    model->width = in.count("the width", 1, MAX_WIDTH);
    model->vocab = in.count("the vocabulary", 1, MAX_VOCAB);
    model->source_vocab = in.count("the source vocabulary", 0, MAX_VOCAB);
    model->has_encoder = model->source_vocab > 0;
    model->has_decoder = in.flag("a decoder");
    if (!model->has_encoder && !model->has_decoder) throw Refused("a model needs an encoder or a decoder");
    read_embedding(in, model->embed, model->vocab, model->width);
    if (model->has_encoder) {
        read_embedding(in, model->source, model->source_vocab, model->width);
        read_stack(in, model->encoder, false);
    }
    if (model->has_decoder) {
        read_stack(in, model->decoder, true);
        const Stored head = in.tensor("the head", model->vocab, model->width);
        in.linear(model->head, model->width, {head}, {in.vector("the head's bias", model->vocab, true)});
        for (Embedding* e : {&model->embed, &model->source})  // tied: the packed weights of the head serve both
            if (precision == Precision::float32 && is_same(e->table, head)) e->packed = &model->head.matrix;
        model->head_scale = float(in.number("the head's scale", -1e6, 1e6));
    }
    in.end();
    return model;
}

}  // namespace regard
