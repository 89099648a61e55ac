#include "checkpoint/core/sharded_index.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/core/shallow_json.h"
#include "checkpoint/core/unsupported_file.h"

namespace ddp {
namespace {

using nlohmann::json;

// A downloaded index must not reach other files. (Its shards may be links: caches keep files elsewhere.)
bool stays_inside(const std::string& name) {
  const std::filesystem::path path(name);
  if (name.empty() || path.is_absolute() || !path.has_filename()) return false;
  return std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".." || part == "."; }) &&
         name.find('\0') == std::string::npos && name.find('\\') == std::string::npos;
}

}  // namespace

ShardedIndex parse_sharded_index(std::string_view text) {
  json root;
  try {
    root = parse_shallow_json(text);
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("it is not valid JSON: ") + error.what());
  }
  const auto found = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || found == root.end() || !found->is_object()) {
    throw std::invalid_argument("it has no \"weight_map\", which says which file holds which tensor");
  }
  ShardedIndex index;
  for (const auto& [name, file] : found->items()) {
    const auto refuse = [&](const std::string& why) {
      const auto place = file.dump(-1, ' ', false, json::error_handler_t::replace);
      return std::invalid_argument("tensor " + safetensors::quote_name(name) + " is said to be in " +
                                   safetensors::quote_name(place) + ", which is " + why);
    };
    if (!file.is_string() || !stays_inside(file.get<std::string>())) {
      throw refuse("not a file name inside the index's folder");
    }
    if (is_sharded_index(file.get<std::string>())) {
      throw refuse("an index itself: only files with tensors can be named there");
    }
    index[file.get<std::string>()].insert(name);
  }
  if (index.empty()) throw std::invalid_argument("its \"weight_map\" is empty");
  return index;
}

bool is_sharded_index(const std::filesystem::path& path) {
  return path.filename().string().ends_with(".index.json");
}

std::optional<std::filesystem::path> find_model_in_folder(const std::filesystem::path& folder) {
  for (const auto* name :
       {"model.safetensors.index.json", "model.safetensors", "pytorch_model.bin.index.json", "pytorch_model.bin"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  }
  return std::nullopt;
}

std::filesystem::path model_in_folder(const std::filesystem::path& folder) {
  if (auto found = find_model_in_folder(folder)) return *found;
  const auto what = describe_unsupported_folder(folder);
  throw std::runtime_error(folder.string() +
                           " is a folder without model.safetensors, model.safetensors.index.json or pytorch_model.bin" +
                           (what.empty() ? "" : ": " + what));
}

}  // namespace ddp
