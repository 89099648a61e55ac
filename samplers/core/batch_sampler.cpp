#include "ddprun/samplers/batch_sampler.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace ddp {

BatchSampler::BatchSampler(std::vector<int64_t> indices, int64_t batch_size, bool drop_last)
    : indices_(std::move(indices)), batch_size_(batch_size), size_(0) {
  if (batch_size < 1) {
    throw std::invalid_argument("Invalid batch size " + std::to_string(batch_size) + ", it should be at least 1");
  }
  const auto count = static_cast<int64_t>(indices_.size());
  size_ = count / batch_size + (!drop_last && count % batch_size != 0 ? 1 : 0);
}

std::span<const int64_t> BatchSampler::operator[](int64_t batch) const {
  if (batch < 0 || batch >= size_) {
    throw std::out_of_range("BatchSampler: batch " + std::to_string(batch) + " is out of range for " +
                            std::to_string(size_) + " batches");
  }
  const auto begin = static_cast<size_t>(batch * batch_size_);
  return std::span(indices_).subspan(begin, std::min(static_cast<size_t>(batch_size_), indices_.size() - begin));
}

}  // namespace ddp
