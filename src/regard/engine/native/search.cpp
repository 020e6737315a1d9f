#include "search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <numeric>

namespace regard {
namespace {

constexpr double LOWEST = -std::numeric_limits<double>::infinity();
constexpr int PERIODS = 16;               // the longest cycle that the repetition guard detects
constexpr int64_t ROWS = 96;              // hypotheses that one worker decodes together
constexpr int64_t PROMPT_ROWS = 512;      // tokens of prompts and sources that are read together

// Forbids the token that continues a cycle which has already repeated for longer than the source (RepetitionGuard).
struct Guard {
    int32_t history[PERIODS], run[PERIODS];
    Guard() {
        std::fill_n(history, PERIODS, -1);
        std::fill_n(run, PERIODS, 0);
    }
    void update(int32_t token) {
        for (int p = 0; p < PERIODS; p++) run[p] = history[p] == token ? run[p] + 1 : 0;
        std::memmove(history + 1, history, sizeof(int32_t) * (PERIODS - 1));
        history[0] = token;
    }
    void forbid(int64_t patience, std::vector<int32_t>& out) const {
        for (int p = 0; p < PERIODS; p++)
            if (run[p] + p + 1 > patience && run[p] >= 2 * (p + 1)) out.push_back(history[p]);
    }
};

struct Running {
    double total = 0;
    int32_t last = 0;
    std::vector<float*> past;  // keys and values of every token read, and a place for the next one
    Guard guard;
};

struct Finished {
    double score = LOWEST, total = LOWEST;
    int64_t parent = 0, length = 0;
    int32_t token = 0;
};

struct Move {
    int64_t parent;
    int32_t token;
};

struct Sentence {
    const Input* input = nullptr;
    std::vector<Hypothesis>* out = nullptr;
    int64_t step = 0;
    Memory memory;
    std::vector<Running> running;
    std::vector<std::vector<Move>> trail;
    std::vector<Finished> finished;  // best first
    Slots slots;
    bool over = false;
    explicit Sentence(const Model& model) : slots(model) {}
};

uint64_t mix_bits(uint64_t z) {
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

// One number in [0, 1) for an input and a step, as `draw_uniform` in decode/sample.py.
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
    for (float& x : p) x = total > 0 && x >= 0 ? float(x / total) : 0.0f;  // no NaN: sorting would not end
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

// Inputs that no worker has taken yet, longest first so that sentences of a pass are alike.
class Queue {
  public:
    explicit Queue(const std::vector<Input>& inputs) : inputs_(inputs), order_(inputs.size()) {
        std::iota(order_.begin(), order_.end(), size_t(0));
        std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return inputs[a].source.n > inputs[b].source.n; });
    }
    size_t left() const { return order_.size() - std::min(order_.size(), next_.load()); }
    // The next few inputs: at most `count`, and at most `tokens` tokens of sources (but one in any case).
    std::vector<size_t> take(int64_t count, int64_t tokens) {
        std::lock_guard<std::mutex> lock(mutex_);
        std::vector<size_t> out;
        size_t next = next_;
        for (; next < order_.size() && int64_t(out.size()) < count; next++) {
            tokens -= inputs_[order_[next]].source.n;
            if (tokens < 0 && !out.empty()) break;
            out.push_back(order_[next]);
        }
        next_ = next;
        return out;
    }

  private:
    const std::vector<Input>& inputs_;
    std::vector<size_t> order_;
    std::atomic<size_t> next_{0};
    std::mutex mutex_;
};

// Decodes sentences from the queue; they join when others have left.
class Worker {
  public:
    Worker(const Model& model, Team* team, const std::vector<Input>& inputs, const Search& how,
           const std::vector<uint8_t>& banned, std::vector<std::vector<Hypothesis>>& out)
        : model_(model), inputs_(inputs), how_(how), banned_(banned), out_(out), forward_(model, team) {}

    // With `sharing`, the team works on large products where that pays.
    void run(Queue& queue, int64_t most, Sharing* sharing) {
        const int64_t k = how_.sample ? 1 : how_.beam, room = std::max<int64_t>(most / k, 1);
        if (sharing) sharing->begin(k);
        forward_.shares = sharing && sharing->choice != 0;
        for (int64_t steps = 0;; steps++) {
            const int64_t active = int64_t(active_.size());
            if (queue.left() && active <= room / 2) start(queue, room - active);
            if (active_.empty()) return;
            const auto began = std::chrono::steady_clock::now();
            step();
            if (!sharing) continue;
            const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            forward_.shares = sharing->next(steps, forward_.shares, took);
        }
    }

  private:
    void start(Queue& queue, int64_t count) {
        const std::vector<size_t> taken = queue.take(count, PROMPT_ROWS);
        const int64_t k = how_.sample ? 1 : how_.beam;
        rows_.clear();
        const size_t first = active_.size();
        for (size_t i : taken) {
            const Span source = inputs_[i].source;
            active_.push_back(std::make_unique<Sentence>(model_));
            Sentence& s = *active_.back();
            s.input = &inputs_[i], s.out = &out_[i];
            s.finished.resize(size_t(how_.sample ? 0 : k));
            s.running.resize(1);
            if (model_.has_encoder) {
                for (int64_t t = 0; t < source.n; t++) {
                    rows_.tokens.push_back(source.data[t]), rows_.pos.push_back(t);
                    rows_.first.push_back(rows_.size() - 1 - t), rows_.length.push_back(source.n);
                }
                s.running[0].last = how_.bos;
            } else {
                s.running[0].last = source.data[source.n - 1];
            }
        }
        if (model_.has_encoder) {
            forward_.encode(rows_);
            std::vector<Memory> memories = forward_.remember(rows_);
            for (size_t i = 0; i < memories.size(); i++) active_[first + i]->memory = std::move(memories[i]);
        } else {
            for (size_t i = first; i < active_.size(); i++) read_prompt(*active_[i]);
        }
    }

    // Reads all but the last token of a prompt, in passes of limited size.
    void read_prompt(Sentence& s) {
        const Span source = s.input->source;
        std::vector<float*>& past = s.running[0].past;
        for (int64_t t = 0; t + 1 < source.n; t++) past.push_back(s.slots.add(pages_));
        for (int64_t from = 0; from + 1 < source.n; from += PROMPT_ROWS) {
            rows_.clear();
            for (int64_t t = from; t < std::min(from + PROMPT_ROWS, source.n - 1); t++) {
                rows_.tokens.push_back(source.data[t]), rows_.pos.push_back(t);
                rows_.past.push_back(past.data()), rows_.memory.push_back(nullptr);
            }
            forward_.decode(rows_);
        }
    }

    // One token for every hypothesis of every sentence.
    void step() {
        rows_.clear();
        which_.clear(), tops_.clear(), also_.clear();
        const int64_t want = how_.sample ? 0 : how_.beam > 1 ? std::min(2 * how_.beam, model_.vocab) : 1;
        std::vector<size_t> marks;
        for (auto& s : active_)
            for (Running& r : s->running) {
                if (r.total == LOWEST) continue;
                r.past.push_back(s->slots.add(pages_));
                rows_.tokens.push_back(r.last), rows_.pos.push_back(int64_t(r.past.size()) - 1);
                rows_.past.push_back(r.past.data()), rows_.memory.push_back(&s->memory);
                Top top{};
                top.want = want;
                const bool forced = s->step < s->input->prefix.n;
                if (forced) {
                    top.watch = s->input->prefix.data[s->step], top.want = 0;
                } else {
                    top.banned = banned_.data();
                    const size_t before = also_.size();
                    if (how_.repetition_guard) r.guard.forbid(s->input->source.n, also_);
                    top.n_also = int64_t(also_.size() - before);
                }
                marks.push_back(also_.size() - size_t(top.n_also));
                which_.push_back(int64_t(tops_.size()));
                tops_.push_back(top);
            }
        const int64_t n = int64_t(tops_.size());
        float* values = values_.need(n * want);
        int32_t* ids = ids_.need(n * want);
        for (int64_t i = 0; i < n; i++) {
            Top& top = tops_[size_t(i)];
            top.values = values + i * want, top.ids = ids + i * want;
            top.also = also_.data() + marks[size_t(i)];
        }
        forward_.decode(rows_);
        forward_.score(which_, tops_, how_.sample ? logits_.need(n * model_.vocab) : nullptr);
        size_t row = 0;
        for (auto& s : active_) {
            if (how_.sample || how_.beam == 1) extend(*s, row);
            else extend_beam(*s, row);
            if (s->over) s->slots.give_back(pages_);
        }
        active_.erase(std::remove_if(active_.begin(), active_.end(), [](const auto& s) { return s->over; }), active_.end());
    }

    // Greedy search and sampling: one hypothesis, one row.
    void extend(Sentence& s, size_t& row) {
        const Top& top = tops_[row];
        Running& r = s.running[0];
        const double log_sum = double(top.max) + std::log(double(top.sum));
        double log_prob;
        if (top.watch >= 0) {
            r.last = top.watch, log_prob = float(top.watched - log_sum);
        } else if (how_.sample) {
            probs_.assign(logits_.get() + int64_t(row) * model_.vocab, logits_.get() + int64_t(row + 1) * model_.vocab);
            for (size_t i = 0; i < probs_.size(); i++)
                probs_[i] = banned_[i] ? -std::numeric_limits<float>::infinity() : float(probs_[i] - log_sum);
            for (int64_t i = 0; i < top.n_also; i++) probs_[size_t(top.also[i])] = -std::numeric_limits<float>::infinity();
            const double uniform = draw_uniform(how_.seed, s.input->number, uint64_t(how_.first_step + s.step));
            r.last = int32_t(draw_token(how_, probs_, scratch_, uniform));
            log_prob = float(logits_[int64_t(row) * model_.vocab + r.last] - log_sum);
        } else if (top.count) {
            r.last = top.ids[0], log_prob = float(top.values[0] - log_sum);
        } else {  // nothing may be written
            r.last = how_.eos, log_prob = LOWEST;
        }
        row++;
        r.total += log_prob;
        r.guard.update(r.last);
        s.step++;
        s.trail.push_back({{0, r.last}});
        if (r.last != how_.eos && s.step < s.input->limit) return;
        Hypothesis h;
        for (const auto& moves : s.trail)
            if (moves[0].token != how_.eos) h.tokens.push_back(moves[0].token);
        h.log_prob = r.total, h.score = r.total / how_.divisor(s.step);
        s.out->push_back(std::move(h));
        s.over = true;
    }

    struct Candidate {
        double total;
        int64_t parent;
        int32_t token;
    };

    void extend_beam(Sentence& s, size_t& row) {
        const int64_t k = how_.beam;
        candidates_.clear();
        for (size_t parent = 0; parent < s.running.size(); parent++) {
            if (s.running[parent].total == LOWEST) continue;
            const Top& top = tops_[row++];
            const double log_sum = double(top.max) + std::log(double(top.sum)), before = s.running[parent].total;
            const auto add = [&](float logit, int32_t token) {
                const double total = before + double(float(logit - log_sum));
                if (total > LOWEST) candidates_.push_back({total, int64_t(parent), token});
            };
            if (top.watch >= 0) add(top.watched, top.watch);
            for (int64_t i = 0; i < top.count; i++) add(top.values[i], top.ids[i]);
        }
        std::stable_sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) { return a.total > b.total; });
        if (int64_t(candidates_.size()) > 2 * k) candidates_.resize(size_t(2 * k));
        s.step++;
        const double divisor = how_.divisor(s.step);
        const bool last = s.step >= s.input->limit;
        std::vector<Running> next;
        std::vector<Move> moves;
        for (size_t i = 0; i < candidates_.size(); i++) {
            const Candidate& c = candidates_[i];
            if (c.token == how_.eos || last) {
                if (int64_t(i) < k) finish(s, {c.total / divisor, c.total, c.parent, s.step, c.token});
            } else if (int64_t(next.size()) < k) {
                moves.push_back({c.parent, c.token});
                next.emplace_back();
                Running &to = next.back(), &from = s.running[size_t(c.parent)];
                to.total = c.total, to.last = c.token, to.past = from.past, to.guard = from.guard;
                to.guard.update(c.token);
            }
        }
        const double ahead = next.empty() ? LOWEST : next[0].total / divisor;
        s.running = std::move(next);
        s.trail.push_back(std::move(moves));
        if (ahead > s.finished.back().score) return;
        s.over = true;
        for (const Finished& f : s.finished) {
            if (f.score == LOWEST || int64_t(s.out->size()) == how_.n_best) break;
            Hypothesis h;
            if (f.token != how_.eos) h.tokens.push_back(f.token);
            int64_t at = f.parent;
            for (int64_t t = f.length - 2; t >= 0; t--) {
                const Move& move = s.trail[size_t(t)][size_t(at)];
                h.tokens.push_back(move.token);
                at = move.parent;
            }
            std::reverse(h.tokens.begin(), h.tokens.end());
            h.log_prob = f.total, h.score = f.score;
            s.out->push_back(std::move(h));
        }
    }

    void finish(Sentence& s, const Finished& f) {
        size_t i = s.finished.size();
        if (!(f.score > s.finished[i - 1].score)) return;
        for (i--; i > 0 && s.finished[i - 1].score < f.score; i--) s.finished[i] = s.finished[i - 1];
        s.finished[i] = f;
    }

    const Model& model_;
    const std::vector<Input>& inputs_;
    const Search& how_;
    const std::vector<uint8_t>& banned_;
    std::vector<std::vector<Hypothesis>>& out_;
    Forward forward_;
    std::vector<std::unique_ptr<Sentence>> active_;
    std::vector<Buffer<float>> pages_;
    Rows rows_;
    std::vector<int64_t> which_;
    std::vector<Top> tops_;
    std::vector<int32_t> also_;
    std::vector<Candidate> candidates_;
    std::vector<float> probs_, scratch_;
    Buffer<float> values_, logits_;
    Buffer<int32_t> ids_;
};

}  // namespace

double Search::divisor(int64_t length) const {
    if (penalty == gnmt) return std::pow(double(5 + length) / 6, alpha);
    return penalty == power ? std::pow(double(length), alpha) : 1.0;
}

std::vector<std::vector<Hypothesis>> search(const Model& model, Team& team, const std::vector<Input>& inputs,
                                            const Search& how, const std::vector<uint8_t>& banned, Sharing& sharing) {
    std::vector<std::vector<Hypothesis>> out(inputs.size());
    Queue queue(inputs);
    const int64_t threads = team.size(), count = int64_t(inputs.size()), k = how.sample ? 1 : how.beam;
    if (threads == 1 || count < threads) {  // one stream, whose large products are shared
        Worker worker(model, threads == 1 ? nullptr : &team, inputs, how, banned, out);
        worker.run(queue, ROWS, threads == 1 ? nullptr : &sharing);
        return out;
    }
    const int64_t most = std::min(ROWS, (count + threads - 1) / threads * k);
    std::vector<std::exception_ptr> errors(size_t(threads), nullptr);
    team.run([&](int i) {
        try {
            Worker worker(model, nullptr, inputs, how, banned, out);
            worker.run(queue, most, nullptr);
        } catch (...) {
            errors[size_t(i)] = std::current_exception();
        }
    });
    for (auto& error : errors)
        if (error) std::rethrow_exception(error);
    return out;
}

std::vector<std::vector<double>> score_targets(const Model& model, const std::vector<Input>& inputs, int32_t bos) {
    std::vector<std::vector<double>> out;
    Forward forward(model);
    for (const Input& input : inputs) {
        Rows rows;
        Memory memory;
        const Span source = input.source, target = input.prefix;
        std::vector<int32_t> read;
        if (model.has_encoder) {
            for (int64_t t = 0; t < source.n; t++) {
                rows.tokens.push_back(source.data[t]), rows.pos.push_back(t);
                rows.first.push_back(0), rows.length.push_back(source.n);
            }
            forward.encode(rows);
            memory = std::move(forward.remember(rows)[0]);
            read.push_back(bos);
        } else {
            read.assign(source.data, source.data + source.n);
        }
        const int64_t skipped = int64_t(read.size()) - 1;
        read.insert(read.end(), target.data, target.data + target.n);
        read.pop_back();
        Slots slots(model);
        std::vector<Buffer<float>> spare;
        std::vector<float*> past;
        rows.clear();
        std::vector<int64_t> which;
        std::vector<Top> tops;
        for (int64_t t = 0; t < int64_t(read.size()); t++) {
            past.push_back(slots.add(spare));
            rows.tokens.push_back(read[size_t(t)]), rows.pos.push_back(t), rows.memory.push_back(&memory);
            if (t < skipped) continue;
            Top top{};
            top.watch = target.data[t - skipped];
            which.push_back(t);
            tops.push_back(top);
        }
        rows.past.assign(read.size(), past.data());
        forward.decode(rows);
        forward.score(which, tops, nullptr);
        out.emplace_back();
        for (const Top& top : tops) out.back().push_back(double(top.watched) - double(top.max) - std::log(double(top.sum)));
    }
    return out;
}

std::vector<float> encode_source(const Model& model, Span source) {
    Forward forward(model);
    Rows rows;
    for (int64_t t = 0; t < source.n; t++) {
        rows.tokens.push_back(source.data[t]), rows.pos.push_back(t);
        rows.first.push_back(0), rows.length.push_back(source.n);
    }
    forward.encode(rows);
    std::vector<float> out;
    for (int64_t t = 0; t < source.n; t++) {
        const float* row = forward.stream() + t * forward.stride();
        out.insert(out.end(), row, row + model.width);
    }
    return out;
}

}  // namespace regard
