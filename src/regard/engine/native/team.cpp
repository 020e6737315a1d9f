#include "team.h"

#include <exception>

namespace regard {
namespace {

constexpr int SPINS = 600, PATIENCE = 2000;  // pauses before a helper sleeps, and before a waiting caller yields its core

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace

Team::Team(int threads) {
    try {
        for (int i = 1; i < threads; i++) helpers_.emplace_back([this, i] { help(i); });
    } catch (const std::exception&) {
        // No more threads, or no memory for them: work with those that run.
    }
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(mutex_);
        over_ = true;
        round_++;
    }
    wake_.notify_all();
    for (auto& helper : helpers_) helper.join();
}

void Team::run(const std::function<void(int)>& f) {
    if (helpers_.empty()) return f(0);
    task_ = &f;
    busy_ = int(helpers_.size());
    round_++;
    if (asleep_ > 0) {
        std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_all();
    }
    f(0);
    for (int spins = 0; busy_ > 0; spins++) {
        if (spins < PATIENCE) pause_briefly();
        else std::this_thread::yield();
    }
}

void Team::help(int number) {
    for (uint64_t seen = 0;;) {
        for (int spins = 0; round_ == seen && spins < SPINS; spins++) pause_briefly();
        if (round_ == seen) {
            std::unique_lock<std::mutex> lock(mutex_);
            asleep_++;
            wake_.wait(lock, [&] { return round_ != seen; });
            asleep_--;
        }
        seen = round_;
        if (over_) return;
        (*task_)(number);
        busy_--;
    }
}

}  // namespace regard
