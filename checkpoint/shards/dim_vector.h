// One number for each dimension of a tensor, as small as can be: catalogs have millions of them. No LibTorch.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ddp::shards {

/// Offsets or sizes: a std::vector<int64_t> of a fixed length, from and to which it converts. Those of at most kInline
/// dimensions allocate nothing. Reference: c10::DimVector.
class DimVector {
 public:
  static constexpr size_t kInline = 2;

  DimVector() = default;
  /// `value` for each of `size` dimensions.
  explicit DimVector(size_t size, int64_t value = 0) : size_(size) {
    allocate();
    std::fill(begin(), end(), value);
  }
  DimVector(std::initializer_list<int64_t> numbers) : DimVector(numbers.begin(), numbers.size()) {}
  DimVector(const std::vector<int64_t>& numbers)  // NOLINT(google-explicit-constructor): the same numbers
      : DimVector(numbers.data(), numbers.size()) {}
  DimVector(const DimVector& other) : DimVector(other.begin(), other.size_) {}
  DimVector(DimVector&& other) noexcept { take(other); }
  DimVector& operator=(const DimVector& other) { return *this = DimVector(other); }
  DimVector& operator=(DimVector&& other) noexcept {
    if (this == &other) return *this;
    free();
    take(other);
    return *this;
  }
  ~DimVector() { free(); }

  operator std::vector<int64_t>() const { return {begin(), end()}; }  // NOLINT(google-explicit-constructor)

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int64_t* begin() { return size_ > kInline ? allocated_ : inline_.data(); }
  int64_t* end() { return begin() + size_; }
  const int64_t* begin() const { return size_ > kInline ? allocated_ : inline_.data(); }
  const int64_t* end() const { return begin() + size_; }
  int64_t& operator[](size_t dimension) { return begin()[dimension]; }
  const int64_t& operator[](size_t dimension) const { return begin()[dimension]; }
  int64_t& at(size_t dimension) {
    return dimension < size_ ? begin()[dimension] : throw std::out_of_range("dimension");
  }
  const int64_t& at(size_t dimension) const {
    return dimension < size_ ? begin()[dimension] : throw std::out_of_range("dimension");
  }
  int64_t* data() { return begin(); }
  const int64_t* data() const { return begin(); }

  friend bool operator==(const DimVector& left, const DimVector& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end());
  }
  friend bool operator==(const DimVector& left, const std::vector<int64_t>& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end());
  }
  friend std::strong_ordering operator<=>(const DimVector& left, const DimVector& right) {
    return std::lexicographical_compare_three_way(left.begin(), left.end(), right.begin(), right.end());
  }

 private:
  DimVector(const int64_t* numbers, size_t size) : size_(size) {
    allocate();
    std::copy_n(numbers, size, begin());
  }

  void allocate() {
    if (size_ > kInline) allocated_ = new int64_t[size_];
  }

  void free() {
    if (size_ > kInline) delete[] allocated_;
  }

  // Leaves nothing in `other`.
  void take(DimVector& other) {
    size_ = std::exchange(other.size_, 0);
    if (size_ > kInline) {
      allocated_ = other.allocated_;
    } else {
      inline_ = other.inline_;
    }
  }

  size_t size_ = 0;
  union {
    std::array<int64_t, kInline> inline_{};
    int64_t* allocated_;
  };
};

}  // namespace ddp::shards
