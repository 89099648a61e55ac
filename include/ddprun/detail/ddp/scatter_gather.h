// Batches cut into pieces for several devices, and results put together again, as DataParallel does with a model's
// arguments and results. Both are part of the autograd graph. Reference: torch.nn.parallel.scatter and gather.
//
// What is walked: tensors, std::vector, std::tuple, std::pair, std::map and std::optional of such; other values are
// copied to every piece, and cannot be put together.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/device_copy.h>

namespace ddp::detail {

/// How a batch is cut: at most one piece per device along `dim`, of equal sizes but for the last (at::chunk's rule).
class Scatter {
 public:
  Scatter(const std::vector<c10::Device>& devices, int64_t dim) : devices_(devices), dim_(dim) {}

  /// Counts the pieces of everything in `value`. Tensors without dimensions are not cut.
  void look_at(const at::Tensor& value) {
    if (!value.defined() || value.dim() == 0) return;
    const int64_t pieces = count_pieces(value.size(dim_));
    if (pieces_ != 0 && pieces_ != pieces) {
      throw std::invalid_argument(
          "DataParallel: the tensors of a batch must be cut into equally many pieces, but one has " +
          std::to_string(rows_) + " rows and another " + std::to_string(value.size(dim_)));
    }
    pieces_ = pieces;
    rows_ = value.size(dim_);
  }
  template <typename T>
  void look_at(const std::vector<T>& values) {
    for (const auto& value : values) look_at(value);
  }
  template <typename K, typename T>
  void look_at(const std::map<K, T>& values) {
    for (const auto& [key, value] : values) look_at(value);
  }
  template <typename T>
  void look_at(const std::optional<T>& value) {
    if (value) look_at(*value);
  }
  template <typename A, typename B>
  void look_at(const std::pair<A, B>& value) {
    look_at(value.first);
    look_at(value.second);
  }
  template <typename... T>
  void look_at(const std::tuple<T...>& values) {
    std::apply([&](const auto&... value) { (look_at(value), ...); }, values);
  }
  template <typename T>
  void look_at(const T& /*value*/) {}

  /// Number of pieces; 1 when there was nothing to cut.
  size_t pieces() const { return pieces_ == 0 ? 1 : static_cast<size_t>(pieces_); }

  /// Piece number i of `value`, on device i.
  at::Tensor piece(const at::Tensor& value, size_t i) const {
    if (!value.defined()) return value;
    if (value.dim() == 0) return to_device(value, devices_[i]);
    return to_device(value.chunk(static_cast<int64_t>(devices_.size()), dim_)[i], devices_[i]);
  }
  template <typename T>
  std::vector<T> piece(const std::vector<T>& values, size_t i) const {
    std::vector<T> result;
    for (const auto& value : values) result.push_back(piece(value, i));
    return result;
  }
  template <typename K, typename T>
  std::map<K, T> piece(const std::map<K, T>& values, size_t i) const {
    std::map<K, T> result;
    for (const auto& [key, value] : values) result.emplace(key, piece(value, i));
    return result;
  }
  template <typename T>
  std::optional<T> piece(const std::optional<T>& value, size_t i) const {
    return value ? std::optional<T>(piece(*value, i)) : std::nullopt;
  }
  template <typename A, typename B>
  std::pair<A, B> piece(const std::pair<A, B>& value, size_t i) const {
    return {piece(value.first, i), piece(value.second, i)};
  }
  template <typename... T>
  std::tuple<T...> piece(const std::tuple<T...>& values, size_t i) const {
    return std::apply([&](const auto&... value) { return std::tuple<T...>(piece(value, i)...); }, values);
  }
  template <typename T>
  T piece(const T& value, size_t /*i*/) const {
    return value;
  }

 private:
  int64_t count_pieces(int64_t rows) const {
    const auto devices = static_cast<int64_t>(devices_.size());
    const int64_t each = (rows + devices - 1) / devices;
    return each == 0 ? 1 : (rows + each - 1) / each;
  }

  const std::vector<c10::Device>& devices_;
  const int64_t dim_;
  int64_t pieces_ = 0;
  int64_t rows_ = 0;
};

template <typename T>
inline constexpr bool kIsGatherable = false;

/// Puts results together on one device.
class Gather {
 public:
  Gather(c10::Device device, int64_t dim) : device_(device), dim_(dim) {}

  /// Tensors are joined along `dim`; those without dimensions become one row.
  at::Tensor join(const std::vector<at::Tensor>& parts) const {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& part : parts) moved.push_back(to_device(part, device_));
    return moved[0].dim() == 0 ? at::stack(moved) : at::cat(moved, dim_);
  }
  template <typename T>
  std::vector<T> join(const std::vector<std::vector<T>>& parts) const {
    std::vector<T> result;
    for (size_t k = 0; k < parts[0].size(); ++k) {
      result.push_back(join(pick(parts, [&](const auto& part) { return part.at(k); })));
    }
    return result;
  }
  template <typename K, typename T>
  std::map<K, T> join(const std::vector<std::map<K, T>>& parts) const {
    std::map<K, T> result;
    for (const auto& [key, value] : parts[0]) {
      result.emplace(key, join(pick(parts, [&, name = key](const auto& part) { return part.at(name); })));
    }
    return result;
  }
  template <typename T>
  std::optional<T> join(const std::vector<std::optional<T>>& parts) const {
    if (!parts[0]) return std::nullopt;
    return join(pick(parts, [](const auto& part) { return part.value(); }));
  }
  template <typename A, typename B>
  std::pair<A, B> join(const std::vector<std::pair<A, B>>& parts) const {
    return {join(pick(parts, [](const auto& part) { return part.first; })),
            join(pick(parts, [](const auto& part) { return part.second; }))};
  }
  template <typename... T>
  std::tuple<T...> join(const std::vector<std::tuple<T...>>& parts) const {
    return join_tuple(parts, std::index_sequence_for<T...>{});
  }
  template <typename T>
  T join(const std::vector<T>& parts) const {
    static_assert(
        kIsGatherable<T>,
        "DataParallel: forward must return a tensor, or a std::vector, tuple, pair, map or optional of tensors");
    return parts[0];
  }

 private:
  template <typename Parts, typename Choose>
  static auto pick(const Parts& parts, Choose choose) {
    std::vector<decltype(choose(parts[0]))> chosen;
    for (const auto& part : parts) chosen.push_back(choose(part));
    return chosen;
  }
  template <typename... T, size_t... I>
  std::tuple<T...> join_tuple(const std::vector<std::tuple<T...>>& parts, std::index_sequence<I...>) const {
    return {join(pick(parts, [](const auto& part) { return std::get<I>(part); }))...};
  }

  const c10::Device device_;
  const int64_t dim_;
};

}  // namespace ddp::detail
