#include "search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <numeric>

#include "worker.h"

namespace regard {
namespace {

constexpr int64_t ROWS = 64, FEWER = 32;  // hypotheses that a worker decodes together; FEWER if more inputs are waiting

// The inputs that no worker has taken yet, longest first, so that the sentences of a pass have similar lengths.
class Queue {
  public:
    explicit Queue(const std::vector<Input>& inputs) : inputs_(inputs), order_(inputs.size()) {
        std::iota(order_.begin(), order_.end(), size_t(0));
        std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return inputs[a].source.n > inputs[b].source.n; });
    }
    size_t left() const { return order_.size() - std::min(order_.size(), next_.load()); }
    // Takes the next inputs: at most `count`, with at most `tokens` source tokens, but at least one.
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

// Decodes inputs from the queue, at most `most` hypotheses at a time; new sentences join when half of the room is free. With
// `sharing`, the team shares large products when that is faster.
struct Call {
    const Model& model;
    const std::vector<Input>& inputs;
    const Request& request;
    std::vector<std::vector<Hypothesis>>& out;
    const Stop& stop;

    void run(Queue& queue, int64_t most, Team* team, Sharing* sharing) {
        const int64_t k = request.how.hypotheses(), room = std::max<int64_t>(most / k, 1);
        Pages pages(model);
        Worker worker(model, team);
        worker.watch(stop);
        std::vector<std::unique_ptr<Sentence>> owned;
        std::vector<Sentence*> active, fresh;
        std::vector<size_t> places;
        if (sharing) sharing->begin(k);
        worker.share(sharing && sharing->choice != 0);
        for (int64_t steps = 0;; steps++) {
            if (queue.left() && int64_t(active.size()) <= room / 2) {
                fresh.clear();
                for (size_t i : queue.take(room - int64_t(active.size()), PROMPT_ROWS)) {
                    owned.push_back(std::make_unique<Sentence>(model, inputs[i], request, pages));
                    fresh.push_back(owned.back().get()), active.push_back(owned.back().get()), places.push_back(i);
                }
                if (!fresh.empty()) worker.start(fresh);
            }
            if (active.empty()) return;
            const auto began = std::chrono::steady_clock::now();
            worker.step(active);
            size_t left = 0;
            for (size_t i = 0; i < active.size(); i++) {
                if (active[i]->over) {
                    out[places[i]] = std::move(active[i]->out);
                    owned[i].reset();
                    continue;
                }
                if (left != i) owned[left] = std::move(owned[i]);
                active[left] = active[i], places[left++] = places[i];
            }
            owned.resize(left), active.resize(left), places.resize(left);
            if (!sharing) continue;
            const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
            worker.share(sharing->next(steps, worker.shares(), took));
        }
    }
};

}  // namespace

std::vector<std::vector<Hypothesis>> search(const Model& model, Team& team, const std::vector<Input>& inputs,
                                            const Request& request, Sharing& sharing, const Stop& stop) {
    std::vector<std::vector<Hypothesis>> out(inputs.size());
    Queue queue(inputs);
    Call call{model, inputs, request, out, stop};
    const int64_t threads = team.size(), count = int64_t(inputs.size());
    if (threads == 1 || count < threads) {  // one worker, whose large products the team shares
        call.run(queue, ROWS, threads == 1 ? nullptr : &team, threads == 1 ? nullptr : &sharing);
        return out;
    }
    const int64_t each = (count + threads - 1) / threads * request.how.hypotheses(), most = each > ROWS ? FEWER : each;
    std::vector<std::exception_ptr> errors(size_t(threads), nullptr);
    team.run([&](int i) {
        try {
            call.run(queue, most, nullptr, nullptr);
        } catch (...) {
            errors[size_t(i)] = std::current_exception();
        }
    });
    rethrow(errors);
    return out;
}

std::vector<std::vector<double>> score_targets(const Model& model, const std::vector<Input>& inputs, int32_t bos,
                                               const Stop& stop) {
    std::vector<std::vector<double>> out;
    Forward forward(model);
    forward.watch(stop);
    Pages pages(model);
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
        Slots slots(pages);
        std::vector<float*> past;
        rows.clear();
        std::vector<int64_t> which;
        std::vector<Top> tops;
        for (int64_t t = 0; t < int64_t(read.size()); t++) {
            past.push_back(slots.add());
            rows.tokens.push_back(read[size_t(t)]), rows.pos.push_back(t), rows.memory.push_back(&memory);
            if (t < skipped) continue;
            Top top{};
            top.watch = target.data[t - skipped];
            which.push_back(t);
            tops.push_back(top);
        }
        rows.past.assign(read.size(), past.data());
        forward.decode(rows);
        forward.score(model.head, which.data(), tops.data(), int64_t(tops.size()), nullptr);
        out.emplace_back();
        for (const Top& top : tops) out.back().push_back(double(top.watched) - double(top.max) - std::log(double(top.sum)));
    }
    return out;
}

void encode_sources(const Model& model, Team& team, const std::vector<Span>& sources, float* out, const Stop& stop) {
    struct Group {
        Rows rows;
        float* out;
    };
    std::vector<Group> groups;
    for (const Span& source : sources) {
        if (groups.empty() || groups.back().rows.size() + source.n > PROMPT_ROWS) groups.push_back({{}, out});
        Rows& rows = groups.back().rows;
        for (int64_t t = 0; t < source.n; t++) {
            rows.tokens.push_back(source.data[t]), rows.pos.push_back(t);
            rows.first.push_back(rows.size() - 1 - t), rows.length.push_back(source.n);
        }
        out += source.n * model.width;
    }
    std::atomic<size_t> next{0};
    const bool alone = groups.size() < size_t(team.size());  // too few groups: the threads share each of them
    std::vector<std::exception_ptr> errors(size_t(team.size()), nullptr);
    const auto work = [&](int i) {
        try {
            Forward forward(model, alone ? &team : nullptr);
            forward.watch(stop);
            forward.shares = alone;
            for (size_t g = next++; g < groups.size(); g = next++) {
                forward.encode(groups[g].rows);
                for (int64_t t = 0; t < groups[g].rows.size(); t++)
                    std::copy_n(forward.stream() + t * forward.stride(), model.width, groups[g].out + t * model.width);
            }
        } catch (...) {
            errors[size_t(i)] = std::current_exception();
        }
    };
    if (alone) work(0);
    else team.run(work);
    rethrow(errors);
}

}  // namespace regard
