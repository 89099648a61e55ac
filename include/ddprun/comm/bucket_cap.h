// How many bytes of gradients are reduced together. No LibTorch here.
#pragma once

#include <cstdint>

namespace ddp {

/// A number of bytes, the default, or kAutoBucketCap. An integer converts to it.
class BucketCap {
 public:
  static constexpr int64_t kDefaultBytes = int64_t{25} << 20;

  constexpr BucketCap() = default;
  constexpr BucketCap(int64_t bytes) : bytes_(bytes), is_default_(false) {}
  static constexpr BucketCap automatic() {
    BucketCap cap(kDefaultBytes);
    cap.is_automatic_ = true;
    return cap;
  }

  constexpr int64_t bytes() const { return bytes_; }         ///< the size to begin with where it is automatic
  constexpr bool is_default() const { return is_default_; }  ///< nobody asked for a size
  constexpr bool is_automatic() const { return is_automatic_; }

 private:
  int64_t bytes_ = kDefaultBytes;
  bool is_default_ = true;
  bool is_automatic_ = false;
};

/// Bucket size chosen from measurements in the first iterations, the same on all ranks.
inline constexpr BucketCap kAutoBucketCap = BucketCap::automatic();

}  // namespace ddp
