#include "worker.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace regard {
namespace {

constexpr float LOWEST = -std::numeric_limits<float>::infinity();

uint64_t mix_bits(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// A random number in [0, 1) for an input and a step: `draw_uniform` in decode/sample.py.
double draw_uniform(uint64_t seed, uint64_t number, uint64_t step) {
    constexpr uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = number * golden;
    for (uint64_t word : {seed, step}) z = mix_bits(z + word + golden);
    return double(z >> 11) * 0x1p-53;
}

// Draws a token from log-probabilities, some of which are −inf.
int64_t draw_token(const Search& how, std::vector<float>& p, std::vector<float>& scratch, double uniform) {
    float most = -std::numeric_limits<float>::infinity();
    for (float& x : p) x = float(x / float(how.temperature)), most = std::max(most, x);
    double total = 0;
    for (float& x : p) x = std::exp(x - most), total += x;
    for (float& x : p) x = total > 0 && x >= 0 ? float(x / total) : 0.0f;  // no NaN, which sorting cannot order
    const int64_t v = int64_t(p.size());
    if (how.top_k > 0 && how.top_k < v) {
        scratch = p;
        std::nth_element(scratch.begin(), scratch.begin() + (how.top_k - 1), scratch.end(), std::greater<float>());
        const float least = scratch[size_t(how.top_k - 1)];
        for (float& x : p)
            if (x < least) x = 0;
    }
    if (how.top_p < 1) {
        std::vector<int64_t> order(p.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[size_t(a)] > p[size_t(b)]; });
        double sum = 0, mass = 0;
        for (float x : p) sum += x;
        for (int64_t i : order) {
            const double share = double(p[size_t(i)]) / sum, before = mass;
            mass += share;
            if (before >= how.top_p) p[size_t(i)] = 0;
        }
    }
    if (how.min_p > 0) {
        const float bar = float(how.min_p) * *std::max_element(p.begin(), p.end());
        for (float& x : p)
            if (x < bar) x = 0;
    }
    double sum = 0, below = 0;
    for (float x : p) sum += x;
    const double bar = uniform * sum;
    for (int64_t i = 0; i < v; i++) {
        below += p[size_t(i)];
        if (below > bar) return i;
    }
    return v - 1;
}

void finish(Sentence& s, const Finished& f) {
    size_t i = s.finished.size();
    if (!(f.score > s.finished[i - 1].score)) return;
    for (i--; i > 0 && s.finished[i - 1].score < f.score; i--) s.finished[i] = s.finished[i - 1];
    s.finished[i] = f;
}

// While it lives, the team shares the work if there are many rows, even if steps are not shared.
class Together {
  public:
    Together(Forward& forward, int64_t rows) : forward_(forward), before_(forward.shares) {
        forward.shares = before_ || rows >= MANY;
    }
    ~Together() { forward_.shares = before_; }

  private:
    static constexpr int64_t MANY = 16;
    Forward& forward_;
    bool before_;
};

}  // namespace

double Search::divisor(int64_t length) const {
    if (penalty == gnmt) return std::pow(double(5 + length) / 6, alpha);
    return penalty == power ? std::pow(double(length), alpha) : 1.0;
}

Sentence::Sentence(const Model& model, const Input& given, const Request& asked, Pages& pages)
    : input(given), request(&asked), candidates(choose_candidates(model, given, asked)), running(1),
      finished(size_t(asked.how.sample ? 0 : asked.how.beam)), slots(pages) {
    running[0].last = model.has_encoder ? asked.how.bos : given.source.data[given.source.n - 1];
    ready = !model.has_encoder && given.source.n == 1;
}

void Worker::encode(const std::vector<Sentence*>& some) {
    rows_.clear();
    for (const Sentence* s : some) {
        const Span source = s->input.source;
        for (int64_t t = 0; t < source.n; t++) {
            rows_.tokens.push_back(source.data[t]), rows_.pos.push_back(t);
            rows_.first.push_back(rows_.size() - 1 - t), rows_.length.push_back(source.n);
        }
    }
    const Together together(forward_, rows_.size());
    forward_.encode(rows_);
    std::vector<Memory> memories = forward_.remember(rows_);
    for (size_t i = 0; i < memories.size(); i++) some[i]->memory = std::move(memories[i]), some[i]->ready = true;
}

int64_t Worker::read_prompt(Sentence& s, int64_t most) {
    const Span source = s.input.source;
    const int64_t from = s.read, to = std::min(from + std::min(most, PROMPT_ROWS), source.n - 1);
    std::vector<float*>& past = s.running[0].past;
    rows_.clear();
    for (int64_t t = from; t < to; t++) past.push_back(s.slots.add());
    for (int64_t t = from; t < to; t++) {
        rows_.tokens.push_back(source.data[t]), rows_.pos.push_back(t);
        rows_.past.push_back(past.data()), rows_.memory.push_back(nullptr);
    }
    const Together together(forward_, rows_.size());
    try {
        if (rows_.size()) forward_.decode(rows_);
    } catch (const Stopped&) {
        past.resize(size_t(from));
        throw;
    }
    s.read = to, s.ready = to + 1 >= source.n;
    return to - from;
}

void Worker::start(const std::vector<Sentence*>& some) {
    if (model_.has_encoder) return encode(some);
    for (Sentence* s : some)
        while (!s->ready) read_prompt(*s, PROMPT_ROWS);
}

void Worker::step(const std::vector<Sentence*>& some) {
    rows_.clear();
    which_.clear(), tops_.clear(), also_.clear();
    std::vector<size_t> marks;
    int64_t wanted = 0;
    bool samples = false;
    for (Sentence* s : some) {
        const Search& how = s->request->how;
        samples = samples || how.sample;
        for (Running& r : s->running) {
            r.past.push_back(s->slots.add());
            rows_.tokens.push_back(r.last), rows_.pos.push_back(int64_t(r.past.size()) - 1);
            rows_.past.push_back(r.past.data()), rows_.memory.push_back(&s->memory);
            Top top{};
            if (s->step < s->input.prefix.n) {
                top.watch = s->number_of(s->input.prefix.data[s->step]);
            } else {
                const int64_t vocab = s->candidates ? int64_t(s->candidates->ids.size()) : model_.vocab;
                top.want = how.sample ? 0 : how.beam > 1 ? std::min(2 * how.beam, vocab) : 1;
                top.banned = s->banned();
                const size_t before = also_.size();
                if (how.repetition_guard) r.guard.forbid(s->input.source.n, also_);
                for (size_t i = before; i < also_.size(); i++) also_[i] = s->number_of(also_[i]);
                top.n_also = int64_t(also_.size() - before);
            }
            marks.push_back(also_.size() - size_t(top.n_also));
            which_.push_back(int64_t(tops_.size()));
            tops_.push_back(top);
            wanted += top.want;
        }
    }
    float* values = values_.need(wanted);
    int32_t* ids = ids_.need(wanted);
    for (size_t i = 0; i < tops_.size(); i++) {
        Top& top = tops_[i];
        top.values = values, top.ids = ids, top.also = also_.data() + marks[i];
        values += top.want, ids += top.want;
    }
    if (tops_.empty()) return;
    size_t row = 0, extended = 0;
    try {
        forward_.decode(rows_);
        score(some, samples);
        for (Sentence* s : some) {
            if (s->request->how.sample) stop_->check();  // drawing from a large vocabulary takes its time
            if (s->request->how.hypotheses() == 1) extend(*s, row);
            else extend_beam(*s, row);
            extended++;
            if (s->over) s->slots.give_back();
        }
    } catch (const Stopped&) {
        for (size_t i = extended; i < some.size(); i++)
            for (Running& r : some[i]->running) r.past.pop_back();
        throw;
    }
}

// Applies the head to all rows at once; with a shortlist, each sentence has a head of its own.
void Worker::score(const std::vector<Sentence*>& some, bool samples) {
    const int64_t rows = int64_t(tops_.size());
    float* logits = samples ? logits_.need(rows * model_.vocab) : nullptr;
    if (std::none_of(some.begin(), some.end(), [](const Sentence* s) { return bool(s->candidates); }))
        return forward_.score(model_.head, which_.data(), tops_.data(), rows, logits);
    int64_t row = 0;
    for (const Sentence* s : some) {
        const Linear& head = s->candidates ? s->candidates->head : model_.head;
        const int64_t n = int64_t(s->running.size());
        forward_.score(head, which_.data() + row, tops_.data() + row, n, logits ? logits + row * model_.vocab : nullptr);
        row += n;
    }
}

// Greedy search and sampling: one hypothesis, one row.
void Worker::extend(Sentence& s, size_t& row) {
    const Search& how = s.request->how;
    const Top& top = tops_[row];
    Running& r = s.running[0];
    const double log_sum = double(top.max) + std::log(double(top.sum));
    double log_prob;
    if (top.watch >= 0) {
        r.last = s.token_of(top.watch), log_prob = float(top.watched - log_sum);
    } else if (how.sample) {
        const float* logits = logits_.get() + int64_t(row) * model_.vocab;
        probs_.assign(logits, logits + (s.candidates ? int64_t(s.candidates->ids.size()) : model_.vocab));
        for (size_t i = 0; i < probs_.size(); i++) probs_[i] = s.banned()[i] ? LOWEST : float(probs_[i] - log_sum);
        for (int64_t i = 0; i < top.n_also; i++)
            if (top.also[i] >= 0) probs_[size_t(top.also[i])] = LOWEST;
        const double uniform = draw_uniform(how.seed, s.input.number, uint64_t(how.first_step + s.step));
        const int64_t drawn = draw_token(how, probs_, scratch_, uniform);
        r.last = s.token_of(int32_t(drawn)), log_prob = float(logits[drawn] - log_sum);
    } else if (top.count) {
        r.last = s.token_of(top.ids[0]), log_prob = float(top.values[0] - log_sum);
    } else {  // no logit is finite
        r.last = how.eos, log_prob = std::numeric_limits<double>::quiet_NaN();
    }
    row++;
    r.total += log_prob;
    r.guard.update(r.last);
    s.step++;
    s.trail.push_back({{0, r.last}});
    s.written = r.last == how.eos ? -1 : r.last;
    if (r.last != how.eos && s.step < s.input.limit) return;
    Hypothesis h;
    for (const auto& moves : s.trail)
        if (moves[0].token != how.eos) h.tokens.push_back(moves[0].token);
    h.log_prob = r.total, h.score = r.total / how.divisor(s.step);
    s.out.push_back(std::move(h));
    s.over = true;
}

void Worker::extend_beam(Sentence& s, size_t& row) {
    const Search& how = s.request->how;
    const int64_t k = how.beam;
    bool broken = false;
    candidates_.clear();
    for (size_t parent = 0; parent < s.running.size(); parent++) {
        const Top& top = tops_[row++];
        const double log_sum = double(top.max) + std::log(double(top.sum)), before = s.running[parent].total;
        broken = broken || !std::isfinite(log_sum);
        const auto add = [&](float logit, int32_t token) {
            const double total = before + double(float(logit - log_sum));
            if (total > NEVER) candidates_.push_back({total, int64_t(parent), s.token_of(token)});
        };
        if (top.watch >= 0) add(top.watched, top.watch);
        for (int64_t i = 0; i < top.count; i++) add(top.values[i], top.ids[i]);
    }
    if (broken) {  // one hypothesis is enough; the caller refuses a sentence without outputs
        s.over = true;
        return;
    }
    std::stable_sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.total > b.total; });
    if (int64_t(candidates_.size()) > 2 * k) candidates_.resize(size_t(2 * k));
    s.step++;
    const double divisor = how.divisor(s.step);
    const bool last = s.step >= s.input.limit;
    std::vector<Running> next;
    std::vector<Move> moves;
    for (size_t i = 0; i < candidates_.size(); i++) {
        const Candidate& c = candidates_[i];
        if (c.token == how.eos || last) {
            if (int64_t(i) < k) finish(s, {c.total / divisor, c.total, c.parent, s.step, c.token});
        } else if (int64_t(next.size()) < k) {
            moves.push_back({c.parent, c.token});
            next.emplace_back();
            Running &to = next.back(), &from = s.running[size_t(c.parent)];
            to.total = c.total, to.last = c.token, to.past = from.past, to.guard = from.guard;
            to.guard.update(c.token);
        }
    }
    const double ahead = next.empty() ? NEVER : next[0].total / divisor;
    s.running = std::move(next);
    s.trail.push_back(std::move(moves));
    if (ahead > s.finished.back().score) return;
    s.over = true;
    for (const Finished& f : s.finished) {
        if (f.score == NEVER || int64_t(s.out.size()) == how.n_best) break;
        Hypothesis h;
        if (f.token != how.eos) h.tokens.push_back(f.token);
        int64_t at = f.parent;
        for (int64_t t = f.length - 2; t >= 0; t--) {
            const Move& move = s.trail[size_t(t)][size_t(at)];
            h.tokens.push_back(move.token);
            at = move.parent;
        }
        std::reverse(h.tokens.begin(), h.tokens.end());
        h.log_prob = f.total, h.score = f.score;
        s.out.push_back(std::move(h));
    }
}

}  // namespace regard
