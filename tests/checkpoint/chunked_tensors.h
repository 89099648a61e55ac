// Tensors in chunks: all elements of a box, and divisions of a tensor drawn at random.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/shards/box.h"
#include "checkpoint/shards/tensor_catalog.h"

namespace ddp::test {

using Random = std::mt19937_64;

/// A number from `first` to `last`.
inline int64_t drawn(Random& random, int64_t first, int64_t last) {
  return first + static_cast<int64_t>(random() % static_cast<uint64_t>(last - first + 1));
}

/// The number of an element of a tensor of `shape` in row-major order.
inline int64_t linear(const std::vector<int64_t>& place, const std::vector<int64_t>& shape) {
  int64_t number = 0;
  for (size_t i = 0; i < shape.size(); ++i) number = number * shape[i] + place[i];
  return number;
}

/// Calls `each` with the place of every element of `box`, counted from the beginning of the tensor, in row-major order.
inline void for_each_place(const shards::Box& box, const std::function<void(const std::vector<int64_t>&)>& each) {
  std::vector<int64_t> offsets(box.offsets.begin(), box.offsets.end());
  for (const auto size : box.sizes) {
    if (size == 0) return;
  }
  auto place = offsets;
  while (true) {
    each(place);
    size_t i = place.size();
    for (; i > 0; --i) {
      if (++place[i - 1] < offsets[i - 1] + box.sizes[i - 1]) break;
      place[i - 1] = offsets[i - 1];
    }
    if (i == 0) return;
  }
}

/// A part of `box`, which may have no elements.
inline shards::Box drawn_part(Random& random, const shards::Box& box, int64_t least = 0) {
  auto part = box;
  for (size_t i = 0; i < box.sizes.size(); ++i) {
    part.sizes[i] = drawn(random, std::min(least, box.sizes[i]), box.sizes[i]);
    if (drawn(random, 0, 2) == 0) part.sizes[i] = box.sizes[i];
    part.offsets[i] += drawn(random, 0, box.sizes[i] - part.sizes[i]);
  }
  return part;
}

/// Cuts `box` into up to `count` parts, some of them without elements, in any order.
inline std::vector<shards::Box> drawn_division(Random& random, const shards::Box& box, int count) {
  std::vector<shards::Box> parts = {box};
  while (static_cast<int>(parts.size()) < count && !box.sizes.empty()) {
    const auto which = static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(parts.size()) - 1));
    const auto dimension = static_cast<size_t>(drawn(random, 0, static_cast<int64_t>(box.sizes.size()) - 1));
    auto second = parts[which];
    const auto cut = drawn(random, 0, second.sizes[dimension]);
    parts[which].sizes[dimension] = cut;
    second.offsets[dimension] += cut;
    second.sizes[dimension] -= cut;
    parts.push_back(std::move(second));
  }
  std::shuffle(parts.begin(), parts.end(), random);
  return parts;
}

/// A shape of up to 4 dimensions, sometimes with a size of 0.
inline std::vector<int64_t> drawn_shape(Random& random, int64_t longest = 7) {
  std::vector<int64_t> shape(static_cast<size_t>(drawn(random, 0, 4)));
  for (auto& size : shape) size = drawn(random, drawn(random, 0, 9) == 0 ? 0 : 1, longest);
  return shape;
}

/// "w of [4, 6]" in chunks of float32, all in the file "a.safetensors", one after the other.
inline shards::TensorCatalog catalog_of(const std::vector<int64_t>& shape, const std::vector<shards::Box>& boxes) {
  shards::TensorCatalog catalog;
  catalog.files = {"folder/a.safetensors"};
  auto& tensor = catalog.tensors["w"];
  tensor.dtype = "float32";
  tensor.shape = shape;
  uint64_t position = 100;
  for (const auto& box : boxes) {
    uint64_t bytes = 4;
    for (const auto size : box.sizes) bytes *= static_cast<uint64_t>(size);
    tensor.chunks.push_back({.box = box, .file = 0, .begin = position, .size = bytes});
    position += bytes;
  }
  return catalog;
}

}  // namespace ddp::test
