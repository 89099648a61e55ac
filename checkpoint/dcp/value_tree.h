// Builds the nested dicts and lists that DCP took apart, as values of a pickle. No LibTorch and no I/O.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "checkpoint/dcp/path.h"
#include "checkpoint/pt/tensor_walk.h"
#include "checkpoint/pt/value.h"

namespace ddp::dcp {

class ValueTree {
 public:
  /// `max_bytes` bounds what it holds, `max_items` the places of a list.
  ValueTree(size_t max_bytes, size_t max_items);

  /// Puts a copy of `value`, which may be of another pickle, at the place to which the parts of `path` from `begin` on
  /// lead. Tensors in it become Kind::kOtherValue. False when something else is there or a part does not fit. Throws
  /// pt::FormatError when too much was put in.
  bool put(const Path& path, size_t begin, const pt::Value& value);

  /// Puts a tensor there.
  bool put_tensor(const Path& path, size_t begin, pt::TensorEntry tensor);

  /// A dict.
  const pt::Value& root() const { return root_; }

 private:
  pt::Value other(std::string_view what);
  pt::Value copy(const pt::Value& value, int depth);
  bool put_constructed(const Path& path, size_t begin, const pt::Value& value);
  bool put_into(pt::Value& container, const Path& path, size_t index, const pt::Value& value);

  pt::Pickle pickle_;
  pt::Value root_;
  pt::Budget budget_;
  size_t max_items_;
  std::unordered_map<std::string, pt::Value> known_;  // what was put, by its path
};

}  // namespace ddp::dcp
