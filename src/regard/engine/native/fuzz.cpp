// Calls the C interface with damaged plans, weights and requests: fuzz SEEDS CALLS SEED.
//
// SEEDS is written by tests/engine/fuzz.py: for each model its plan (a count, then doubles) and its weights (a count, then
// bytes). Any call may be refused, but none may access memory out of bounds, which the sanitizers detect.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "regard_engine.h"

namespace {

struct Seed {
    std::vector<double> plan;
    std::vector<unsigned char> weights;
};

std::mt19937_64 rng;
uint64_t below(uint64_t n) { return n ? rng() % n : 0; }

std::vector<Seed> read_seeds(const char* path) {
    std::vector<Seed> out;
    FILE* file = std::fopen(path, "rb");
    if (!file) return out;
    int64_t n;
    while (std::fread(&n, 8, 1, file) == 1) {
        out.emplace_back();
        out.back().plan.resize(size_t(n));
        if (std::fread(out.back().plan.data(), 8, size_t(n), file) != size_t(n)) std::abort();
        if (std::fread(&n, 8, 1, file) != 1) std::abort();
        out.back().weights.resize(size_t(n));
        if (std::fread(out.back().weights.data(), 1, size_t(n), file) != size_t(n)) std::abort();
    }
    std::fclose(file);
    return out;
}

double odd_number(double old) {
    const double choices[] = {0, 1, -1, old + 1, old - 1, old * 2, old / 2, 1e18, -1e18, 1e300, 0.5, 4294967296.0,
                              std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                              double(below(1 << 20)), double(below(64))};
    return choices[below(sizeof choices / sizeof choices[0])];
}

void damage(Seed& seed) {
    for (uint64_t i = below(4); i > 0; i--) {
        switch (below(6)) {
            case 0: seed.plan.resize(below(seed.plan.size() + 1)); break;
            case 1: seed.plan.insert(seed.plan.begin() + long(below(seed.plan.size() + 1)), odd_number(1)); break;
            case 2:
                if (!seed.plan.empty()) seed.plan.erase(seed.plan.begin() + long(below(seed.plan.size())));
                break;
            case 3: seed.weights.resize(below(seed.weights.size() + 1)); break;
            default:
                if (!seed.plan.empty()) {
                    double& number = seed.plan[below(seed.plan.size())];
                    number = odd_number(number);
                }
        }
    }
    if (below(3) == 0)
        for (uint64_t i = below(40); i > 0 && !seed.weights.empty(); i--)
            seed.weights[below(seed.weights.size())] = (unsigned char)(below(256));
}

struct Rows {
    std::vector<int32_t> ids;
    std::vector<int64_t> starts{0};
    regard_texts view() const { return {int64_t(starts.size()) - 1, ids.data(), starts.data()}; }
};

Rows make_rows(uint64_t count, bool wild) {
    Rows out;
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t n = wild && below(8) == 0 ? 0 : 1 + below(below(20) ? 7 : 80);
        for (uint64_t t = 0; t < n; t++)
            out.ids.push_back(wild && below(200) == 0 ? int32_t(rng()) : int32_t(3 + below(8)));
        out.starts.push_back(int64_t(out.ids.size()));
    }
    return out;
}

regard_search odd_search() {
    regard_search search = {};
    search.beam = below(30) ? int64_t(1 + below(5)) : int64_t(rng()) % 3000;
    search.n_best = 1 + int64_t(below(3));
    search.penalty = int64_t(below(3)), search.sample = below(3) == 0, search.top_k = int64_t(below(9));
    search.repetition_guard = int64_t(below(2)), search.bos = 1, search.eos = int64_t(below(4)) - 1;
    search.seed = rng(), search.alpha = 0.6, search.temperature = below(30) ? 1 : odd_number(1);
    search.top_p = below(3) ? 1 : 0.7, search.min_p = below(3) ? 0 : 0.1;
    return search;
}

// Ends some calls, from another thread and at any time.
class Stopper {
  public:
    Stopper() {
        if (below(8)) return;
        const uint64_t delay = below(400);
        thread_ = std::thread([this, delay] {
            std::this_thread::sleep_for(std::chrono::microseconds(delay));
            __atomic_store_n(&flag_, 1, __ATOMIC_RELAXED);
        });
    }
    ~Stopper() {
        if (thread_.joinable()) thread_.join();
    }
    const regard_stop* view() const { return &stop_; }

  private:
    int32_t flag_ = 0;
    const int32_t* flags_[1] = {&flag_};
    regard_stop stop_{1, flags_};
    std::thread thread_;
};

// Reads everything that was found.
int64_t count_tokens(const regard_found* found) {
    int64_t total = 0, tokens = 0;
    for (int64_t i = 0; i < found->count; i++) total += found->outputs[i] > 0 ? found->outputs[i] : 0;
    for (int64_t i = 0; i < total && found->tokens; i++) tokens += found->lengths[i];
    return tokens;
}

// Sets a shortlist, whose number of rows may or may not fit the model.
void set_shortlist(regard_model* model) {
    char error[256];
    const uint64_t rows[] = {53, 41, 0, below(60)};
    const Rows candidates = make_rows(rows[below(4)], below(4) == 0), always = make_rows(below(3), below(4) == 0);
    const regard_texts given = candidates.view(), every = always.view();
    regard_set_shortlist(model, &given, &every, error, sizeof error);
}

// Lets sequences join and leave a batch; returns the number of calls.
int64_t run_batch(regard_model* model) {
    char error[256];
    int64_t calls = 1;
    regard_batch* batch = regard_open_batch(model, error, sizeof error);
    if (!batch) return calls;
    for (uint64_t left = 1 + below(12); left > 0; left--, calls++) {
        const Rows source = make_rows(below(20) ? 1 : below(3), true), prefix = make_rows(below(3) == 0, true);
        const std::vector<int32_t> banned = make_rows(1, below(4) == 0).ids;
        const regard_search search = odd_search();
        const regard_texts given = source.view(), begun = prefix.view();
        if (below(3))
            regard_add(batch, &given, &begun, below(30) ? int64_t(1 + below(12)) : int64_t(rng()), int64_t(rng()), banned.data(),
                       int64_t(banned.size()), &search, error, sizeof error);
        if (below(5) == 0) regard_remove(batch, int64_t(below(14)) - 2);
        const Stopper stopper;
        regard_found* found = regard_step(batch, stopper.view(), error, sizeof error);
        if (found && count_tokens(found) < 0) std::abort();
        if (found) regard_free_found(found);
    }
    regard_close_batch(batch);
    return calls;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 4) return 2;
    const std::vector<Seed> seeds = read_seeds(argv[1]);
    const int64_t calls = std::atoll(argv[2]);
    rng.seed(uint64_t(std::atoll(argv[3])));
    if (seeds.empty()) return 2;
    int64_t loaded = 0, decoded = 0, refused = 0, done = 0;
    char error[256];
    while (done < calls) {
        Seed seed = seeds[below(seeds.size())];
        if (below(4)) damage(seed);
        const char* kernels[] = {"auto", "portable", "avx2", "avx512", "neon", "nothing"};
        regard_model* model =
            regard_load(seed.plan.data(), int64_t(seed.plan.size()), seed.weights.data(), int64_t(seed.weights.size()), 0,
                        below(40) ? int(below(3)) : int(rng()), 1 + int(below(16) == 0), kernels[below(20) ? 0 : below(6)], error, sizeof error);
        done++;
        if (!model) {
            refused++;
            continue;
        }
        loaded++;
        if (below(3) == 0) set_shortlist(model), done++;
        if (below(2)) done += run_batch(model);
        for (uint64_t again = 1 + below(4); again > 0; again--, done++) {
            const uint64_t count = below(5);
            const Rows sources = make_rows(count, true), prefixes = make_rows(below(3) ? 0 : count, true);
            std::vector<int64_t> limits, numbers;
            for (uint64_t i = 0; i < count; i++) {
                limits.push_back(below(30) ? int64_t(1 + below(12)) : int64_t(rng()));
                numbers.push_back(int64_t(rng()));
            }
            const std::vector<int32_t> banned = make_rows(1, true).ids;
            const regard_search search = odd_search();
            const regard_texts given = sources.view(), begun = prefixes.view();
            regard_found* found = nullptr;
            const Stopper stopper;
            if (below(5)) {
                found = regard_decode(model, &given, &begun, limits.data(), numbers.data(), banned.data(),
                                      int64_t(banned.size()), &search, stopper.view(), error, sizeof error);
            } else if (below(2)) {
                found = regard_score(model, &given, &begun, int64_t(below(6)), stopper.view(), error, sizeof error);
            } else {
                std::vector<float> out(below(2) ? 64 : sources.ids.size() * 48 + 1);
                regard_encode(model, &given, out.data(), int64_t(out.size()), stopper.view(), error, sizeof error);
            }
            if (found) {
                decoded++;
                const int64_t tokens = count_tokens(found);
                regard_free_found(found);
                if (tokens < 0) std::abort();
            } else {
                refused++;
            }
        }
        regard_free_model(model);
    }
    std::printf("%lld calls: %lld models loaded, %lld requests answered, %lld refused\n", (long long)done, (long long)loaded,
                (long long)decoded, (long long)refused);
    return 0;
}
