// Threads that run one function together, either independent workers or parts of one product.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace regard {

// Helpers that wait for work spin for about ten microseconds and then sleep, because a spinning thread occupies a core that
// another program may need.
class Team {
  public:
    explicit Team(int threads);  // has fewer if the system refuses some
    ~Team();
    int size() const { return size_; }
    // Calls f(0) here and f(1), f(2) … in the helpers, and waits for all. f must not throw.
    void run(const std::function<void(int)>& f);
    // In a child process after a fork, which has no helpers: the next `run` starts others.
    void restart();

  private:
    struct Shared {
        const std::function<void(int)>* task = nullptr;
        std::atomic<uint64_t> round{0};
        std::atomic<int> busy{0}, asleep{0};
        std::atomic<bool> over{false};
        std::mutex mutex;
        std::condition_variable wake;
        void help(int number);
    };
    void start(int threads);
    std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
    std::vector<std::thread> helpers_;
    int size_ = 1;
    bool lost_ = false;  // the helpers, by a fork
};

}  // namespace regard
