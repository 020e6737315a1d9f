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
    start(threads);
    size_ = int(helpers_.size()) + 1;
}

void Team::start(int threads) {
    try {
        for (int i = int(helpers_.size()) + 1; i < threads; i++)
            helpers_.emplace_back([shared = shared_.get(), i] { shared->help(i); });
    } catch (const std::exception&) {
        // No more threads, or no memory for them: work with those that run.
    }
}

Team::~Team() {
    {
        std::lock_guard<std::mutex> lock(shared_->mutex);
        shared_->over = true;
        shared_->round++;
    }
    shared_->wake.notify_all();
    for (auto& helper : helpers_) helper.join();
}

void Team::restart() {
    auto fresh = std::make_unique<Shared>();
    // What the helpers of the parent process used can neither be joined nor destroyed here.
    static_cast<void>(new std::vector<std::thread>(std::move(helpers_)));
    static_cast<void>(shared_.release());
    shared_ = std::move(fresh);
    helpers_.clear();
    lost_ = true;
}

void Team::run(const std::function<void(int)>& f) {
    if (lost_) start(size_), lost_ = false;
    Shared& shared = *shared_;
    if (!helpers_.empty()) {
        shared.task = &f;
        shared.busy = int(helpers_.size());
        shared.round++;
        if (shared.asleep > 0) {
            std::lock_guard<std::mutex> lock(shared.mutex);
            shared.wake.notify_all();
        }
    }
    f(0);
    for (int i = int(helpers_.size()) + 1; i < size_; i++) f(i);  // of helpers that could not be started again
    for (int spins = 0; shared.busy > 0; spins++) {
        if (spins < PATIENCE) pause_briefly();
        else std::this_thread::yield();
    }
}

void Team::Shared::help(int number) {
    for (uint64_t seen = 0;;) {
        for (int spins = 0; round == seen && spins < SPINS; spins++) pause_briefly();
        if (round == seen) {
            std::unique_lock<std::mutex> lock(mutex);
            asleep++;
            wake.wait(lock, [&] { return round != seen; });
            asleep--;
        }
        seen = round;
        if (over) return;
        (*task)(number);
        busy--;
    }
}

}  // namespace regard
