#include "batch.h"

#include <chrono>
#include <exception>
#include <utility>

namespace regard {
namespace {

constexpr size_t MAX_SEQUENCES = 1 << 16;

}  // namespace

Batch::Batch(const Model& model, Team& team) : model_(model), team_(team), pages_(model) {
    for (int i = 0; i < team.size(); i++) workers_.push_back(std::make_unique<Worker>(model, i ? nullptr : &team));
}

int64_t Batch::add(const Input& input, Request request) {
    auto made = std::make_unique<Sequence>();
    made->source.assign(input.source.data, input.source.data + input.source.n);
    made->prefix.assign(input.prefix.data, input.prefix.data + input.prefix.n);
    made->request = std::move(request);
    Input own = input;
    own.source = {made->source.data(), input.source.n}, own.prefix = {made->prefix.data(), input.prefix.n};
    made->sentence = std::make_unique<Sentence>(model_, own, made->request, pages_);
    std::lock_guard<std::mutex> lock(mutex_);
    if (sequences_.size() >= MAX_SEQUENCES) throw Refused("the batch has too many sequences");
    sequences_.emplace(next_, std::move(made));
    return next_++;
}

bool Batch::remove(int64_t sequence) {
    std::lock_guard<std::mutex> lock(mutex_);
    bool found = false;
    for (auto at = sequences_.begin(); at != sequences_.end();) {
        const auto each = at++;
        if ((each->first != sequence && sequence != -1) || each->second->removed) continue;
        found = each->second->removed = true;
        if (!stepping_) sequences_.erase(each);
    }
    const auto gone = [&](const Change& change) { return change.sequence == sequence || sequence == -1; };
    const auto end = std::remove_if(untold_.begin(), untold_.end(), gone);
    found = found || end != untold_.end();
    untold_.erase(end, untold_.end());
    return found;
}

int64_t Batch::size() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::count_if(sequences_.begin(), sequences_.end(), [](const auto& each) { return !each.second->removed; }) +
           std::count_if(untold_.begin(), untold_.end(), [](const Change& change) { return change.over; });
}

// Reads new sequences in the order in which they joined.
void Batch::read_new(const std::vector<Sequence*>& now) {
    int64_t room = PROMPT_ROWS;
    std::vector<Sentence*> some;
    for (Sequence* each : now) {
        Sentence& s = *each->sentence;
        if (s.ready) continue;
        if (room <= 0 || (model_.has_encoder && !some.empty() && s.input.source.n > room)) break;
        if (model_.has_encoder) some.push_back(&s), room -= s.input.source.n;
        else room -= workers_[0]->read_prompt(s, room);
    }
    if (!some.empty()) workers_[0]->encode(some);
}

void Batch::take_step(const std::vector<Sentence*>& ready) {
    const int64_t threads = int64_t(workers_.size()), count = int64_t(ready.size());
    if (threads == 1) return workers_[0]->step(ready);
    if (count != rows_) rows_ = count, steps_ = 0, sharing_.begin(count);
    const bool shared = workers_[0]->shares();
    const auto began = std::chrono::steady_clock::now();
    if (shared || count < threads) {
        workers_[0]->step(ready);
    } else {
        std::vector<std::exception_ptr> errors(size_t(threads), nullptr);
        team_.run([&](int i) {
            try {
                std::vector<Sentence*> own(ready.begin() + count * i / threads, ready.begin() + count * (i + 1) / threads);
                workers_[size_t(i)]->step(own);
            } catch (...) {
                errors[size_t(i)] = std::current_exception();
            }
        });
        rethrow(errors);
    }
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    workers_[0]->share(sharing_.next(steps_++, shared, took));
}

// While it lives, sequences that are removed stay in memory.
struct Batch::Stepping {
    explicit Stepping(Batch& batch) : batch_(batch) { set(true); }
    ~Stepping() { set(false); }
    void set(bool yes) {
        std::lock_guard<std::mutex> lock(batch_.mutex_);
        batch_.stepping_ = yes;
    }
    Batch& batch_;
};

int64_t Batch::tokens() {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t read = 0, first = 0, written = 0;
    for (const auto& [number, each] : sequences_) {
        const Sentence& s = *each->sentence;
        if (each->removed) continue;
        if (s.ready) written += int64_t(s.running.size());
        else read += s.input.source.n - s.read, first = first ? first : s.input.source.n;
    }
    return written + std::min(read, std::max(PROMPT_ROWS, model_.has_encoder ? first : 0));
}

std::vector<Change> Batch::step(const Stop& stop) {
    if (failed_) throw Refused("an earlier step of this batch failed; open another one");
    std::vector<Sequence*> now;
    std::vector<int64_t> numbers;
    const Stepping stepping(*this);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto at = sequences_.begin(); at != sequences_.end();) {
            if (at->second->removed) {
                at = sequences_.erase(at);
                continue;
            }
            now.push_back(at->second.get()), numbers.push_back(at->first);
            ++at;
        }
    }
    if (now.empty()) pages_.forget();
    failed_ = true;  // until this step succeeds, or is stopped
    std::vector<Sentence*> ready;
    std::vector<size_t> places;
    std::vector<int64_t> before;
    bool stopped = false;
    try {
        for (auto& worker : workers_) worker->watch(stop);
        read_new(now);
        for (size_t i = 0; i < now.size(); i++) {
            Sentence* s = now[i]->sentence.get();
            if (s->ready) ready.push_back(s), places.push_back(i), before.push_back(s->step);
        }
        if (!ready.empty()) take_step(ready);
    } catch (const Stopped&) {
        stopped = true;  // some workers may have taken it
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < ready.size(); i++) {
        const int64_t number = numbers[places[i]];
        if (!ready[i]->over && ready[i]->step == before[i]) continue;
        if (!now[places[i]]->removed) untold_.push_back({number, ready[i]->written, ready[i]->over, std::move(ready[i]->out)});
        if (ready[i]->over) sequences_.erase(number);
    }
    failed_ = false;
    if (stopped) throw Stopped();
    return std::exchange(untold_, {});
}

}  // namespace regard
