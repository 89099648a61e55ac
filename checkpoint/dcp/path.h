// The places of values in Python's nested state dicts. No LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace ddp::dcp {

/// The keys of Python's dicts and the places in its lists that lead to a value: {"model", "fc.weight"},
/// {"optim", "param_groups", 0, "lr"}.
using Path = std::vector<std::variant<std::string, int64_t>>;

/// The path's parts from the part `begin` on with dots between them; of the whole path it is DCP's key.
std::string flat_key(const Path& path, size_t begin = 0);

/// The part `index` where it is a key; else, and beyond the end, null.
const std::string* key_at(const Path& path, size_t index);

}  // namespace ddp::dcp
