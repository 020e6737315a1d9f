// Weights as they are stored, and as the kernels read them.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels.h"

namespace regard {

// Refuses a plan, a weight or a request; the user reads the message.
struct Refused : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// Aligned, uninitialized memory that only grows.
template <class T>
class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(int64_t n) { need(n); }
    Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) { other.data_ = nullptr, other.size_ = 0; }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { std::free(data_); }
    // Makes room for n elements; growing loses the contents.
    T* need(int64_t n) {
        if (n > size_) {
            if (n > INT64_C(1) << 40) throw std::bad_alloc();
            std::free(data_);
            data_ = nullptr, size_ = 0;
            data_ = static_cast<T*>(std::aligned_alloc(64, size_t(round_up((n ? n : 1) * int64_t(sizeof(T)), 64))));
            if (!data_) throw std::bad_alloc();
            size_ = n;
        }
        return data_;
    }
    T* get() { return data_; }
    const T* get() const { return data_; }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

  private:
    T* data_ = nullptr;
    int64_t size_ = 0;
};

// The last three are already packed as in kernels.h, and are used in place.
enum class Dtype : int { float32, float16, bfloat16, int8, int8_blocks, int4_blocks, int8_panels, int8_block_panels, int4_block_panels };

// What the engine computes with: float32, int8 with a scale per row, or blocks of 4 or 8 bits.
enum class Precision : int { float32, int8, blocks };

// A matrix in the weights file. int8 has one float32 scale per row. A block of 32 weights has a scale and, with 4 bits, a minimum,
// both float32 or float16: w = scale · u + minimum. Byte i of a 4-bit block holds weight i, and weight i + 16 in its upper half.
struct Stored {
    const unsigned char* data = nullptr;
    const unsigned char *scales = nullptr, *minima = nullptr;
    Dtype dtype = Dtype::float32, scale_dtype = Dtype::float32;
    int64_t rows = 0, cols = 0;
    bool single = false;  // its pages are released once they were copied
    explicit operator bool() const { return data != nullptr; }
    bool int4() const { return dtype == Dtype::int4_blocks || dtype == Dtype::int4_block_panels; }
    bool in_blocks() const { return int4() || dtype == Dtype::int8_blocks || dtype == Dtype::int8_block_panels; }
    bool in_panels() const { return dtype >= Dtype::int8_panels; }
    Matrix as_matrix() const;  // of a weight in panels, in place
    void read_row(int64_t row, float* out) const;
    // Reads the 32 unsigned numbers of a block; returns its scale and minimum. Only if the weight is in blocks.
    std::pair<float, float> read_block(int64_t row, int64_t block, uint8_t* out) const;
};

inline int64_t size_of(Dtype dtype) {
    return dtype == Dtype::float32 ? 4 : dtype == Dtype::float16 || dtype == Dtype::bfloat16 ? 2 : 1;
}

// Whether any of these numbers is NaN.
bool has_nan(const unsigned char* data, int64_t count, Dtype dtype);

// A linear map. It owns what `matrix` points to, unless the weights file is already packed and is used in place.
struct Linear {
    Matrix matrix;
    Precision precision = Precision::float32;
    Buffer<float> floats, scale, bias;
    Buffer<uint8_t> bytes;   // or blocks
};

// Copies the weights of one output of a float32 matrix.
void read_output(const Matrix& m, int64_t output, float* out);

// Sets the sizes of a map from k inputs made of several matrices, one below the other; returns the bytes it will need.
int64_t plan_linear(Linear& out, int64_t k, const std::vector<Stored>& weights, Precision precision);
// Packs the weights, or uses them in place. An empty bias stands for zeros.
void pack_linear(Linear& out, const std::vector<Stored>& weights, const std::vector<std::vector<float>>& biases);

}  // namespace regard
