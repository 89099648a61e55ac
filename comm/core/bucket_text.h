// Which parameters share a gradient bucket, as text for a checkpoint. No LibTorch.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ddp::detail {

/// Indices of parameters, bucket by bucket.
using BucketIndices = std::vector<std::vector<size_t>>;

/// A first line that identifies the format, and a line for each bucket; no lines for the buckets if they are not known.
std::string to_text(const BucketIndices& buckets);
/// The same back. Throws std::invalid_argument for other text, and for buckets that do not hold each of
/// `parameters` parameters once.
BucketIndices buckets_from(const std::string& text, size_t parameters);

}  // namespace ddp::detail
