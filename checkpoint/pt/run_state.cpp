#include "checkpoint/pt/run_state.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/tensor_walk.h"

namespace ddp::pt {
namespace {

using nlohmann::json;
using Keys = std::vector<std::string_view>;

const Keys kScaler = {"scaler", "grad_scaler", "scaler_state_dict", "grad_scaler_state_dict", "amp_scaler"};
const Keys kSchedule = {"scheduler",    "lr_scheduler", "schedule", "scheduler_state_dict", "lr_scheduler_state_dict",
                        "lr_schedulers"};
const Keys kStepKeys = {"step", "global_step", "iteration", "iter", "epoch"};
const Keys kSampler = {"sampler", "sampler_state_dict"};
const Keys kMainOptimizer = {"optimizer", "optim", "optimizer_state_dict", "optimizer_state"};
const Keys kRngState = {"rng_state", "torch_rng_state", "cpu_rng_state"};

const Value* find_any(const Value& root, const Keys& keys) {
  for (const auto key : keys) {
    if (const auto* value = root.find(key)) return value;
  }
  return nullptr;
}

template <typename Use>
void for_each_item(const Value& dict, Use&& use) {
  for (const auto& [key, item] : named_items(dict)) use(key, *item);
}

// Makes JSON of plain values. Other values (tensors, objects, bytes) are left out of dicts, and are null elsewhere.
class JsonMaker {
 public:
  JsonMaker(const ScalarReader& read_scalar, bool names_infinities)
      : read_scalar_(read_scalar), names_infinities_(names_infinities) {}

  static bool is_plain(const Value& value) {
    return value.is(Kind::kBool) || value.is(Kind::kInt) || value.is(Kind::kFloat) || value.is(Kind::kText);
  }

  json make(const Value& value, int depth = 0) {
    // A pickle can refer to one container many times, so that a small pickle describes a text of exponential size.
    constexpr int kMaxDepth = 32;
    constexpr size_t kMaxBytes = size_t{16} << 20;
    spent_ += 16 + (value.is(Kind::kText) ? value.text().size() : 0);
    if (depth > kMaxDepth || spent_ > kMaxBytes) throw FormatError("its plain values are nested too deeply or often");
    switch (value.kind()) {
      case Kind::kBool:
        return value.boolean();
      case Kind::kInt:
        return value.integer();
      case Kind::kFloat:
        return number(value.real());
      case Kind::kText:
        return value.text();
      case Kind::kTensor: {
        const auto number = read_scalar_(value.tensor());
        return number ? json(*number) : json();
      }
      case Kind::kList:
      case Kind::kTuple: {
        auto list = json::array();
        for (const auto& item : value.items()) list.push_back(make(item, depth + 1));
        return list;
      }
      case Kind::kDict: {
        auto dict = json::object();
        for_each_item(value, [&](const std::string& key, const Value& item) { dict[key] = make(item, depth + 1); });
        return dict;
      }
      default:
        return nullptr;
    }
  }

 private:
  // JSON has no infinities. Among plain values they are strings, as in CheckpointValues. In states they mean "not yet"
  // and are null.
  json number(double value) const {
    if (std::isfinite(value) || !names_infinities_) return value;
    return {{"__float__", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
  }

  const ScalarReader& read_scalar_;
  bool names_infinities_;
  size_t spent_ = 0;
};

std::string dump(const json& value) {
  return value.dump(-1, ' ', true, json::error_handler_t::replace);
}

void add_optimizers(const Value& root, const ScalarReader& read_scalar, RunState& run) {
  constexpr size_t kMax = 64;
  const auto add = [&](const std::string& key, const std::string& name, const Value& value) {
    if (!value.is(Kind::kDict) || !is_optimizer(value)) return;
    if (run.optimizers.size() == kMax) throw FormatError("it holds more than 64 optimizers");
    if (!run.optimizers.emplace(name, find_state(value, read_scalar)).second) return;
    run.read_keys.insert(key);
  };
  for (const auto key : kMainOptimizer) {
    if (const auto* value = root.find(key)) add(std::string(key), "", *value);
  }
  for_each_item(root, [&](const std::string& key, const Value& value) {
    if (const auto name = optimizer_name(key); name && !name->empty()) add(key, *name, value);
  });
  for (const auto* key : {"optimizers", "optimizer", "optimizer_states"}) {
    const auto* named = root.find(key);
    if (named == nullptr) continue;
    if (named->is(Kind::kDict)) {
      for_each_item(*named, [&](const std::string& name, const Value& value) { add(key, name, value); });
    } else if (named->is(Kind::kList) || named->is(Kind::kTuple)) {
      for (size_t i = 0; i < named->items().size(); ++i) {
        // A list of one, as some frameworks write it, is the main one.
        add(key, named->items().size() == 1 ? "" : std::to_string(i), named->items()[i]);
      }
    }
  }
}

void add_model(const Value& root, const std::string& key, const ScalarReader& read_scalar, RunState& run) {
  StateDict found;
  try {
    found = find_state(key.empty() ? root : select(root, key), read_scalar);
  } catch (const FormatError&) {
    if (!key.empty() || run.optimizers.empty()) throw;
    return;
  }
  found.metadata.erase(kOptimizerMetadata);
  std::erase_if(found.tensors, [](const auto& item) { return item.first.starts_with("state.#"); });
  found.scalars.clear();
  run.has_model = !found.tensors.empty();
  run.model = std::move(found);
}

// {"cpu": ByteTensor, …}, or a list of those, one per rank.
void add_rng(const Value& root, RunState& run) {
  const auto add = [&](const Value& rank) {
    auto& devices = run.rng.emplace_back();
    if (!rank.is(Kind::kDict)) return;
    for_each_item(rank, [&](const std::string& device, const Value& state) {
      if (state.is(Kind::kTensor) && state.tensor().dtype == "uint8") devices.emplace(device, state.tensor());
    });
  };
  if (const auto* rng = root.find("rng")) {
    if (rng->is(Kind::kList) || rng->is(Kind::kTuple)) {
      for (const auto& rank : rng->items()) add(rank);
    } else {
      add(*rng);
    }
  } else if (const auto* state = find_any(root, kRngState); state != nullptr && state->is(Kind::kTensor)) {
    if (state->tensor().dtype == "uint8") run.rng.push_back({{"cpu", state->tensor()}});
  }
}

std::map<std::string, std::string> objects_of(const Value& dict) {
  std::map<std::string, std::string> objects;
  if (!dict.is(Kind::kDict)) return objects;
  for_each_item(dict, [&](const std::string& name, const Value& value) {
    if (value.is(Kind::kBytes) || value.is(Kind::kText)) objects.emplace(name, value.text());
  });
  return objects;
}

std::optional<int64_t> whole(const Value* value) {
  if (value == nullptr || !value->is(Kind::kInt) || value->integer() < 0) return std::nullopt;
  return value->integer();
}

void add_values(const Value& root, JsonMaker& maker, RunState& run) {
  auto values = json::object();
  for_each_item(root, [&](const std::string& key, const Value& value) {
    if (JsonMaker::is_plain(value)) values[key] = maker.make(value);
  });
  run.plain = dump(values);
  const auto* own = root.find("values");
  const bool has_own = own != nullptr && own->is(Kind::kDict);
  // If the values have their own key, as in files of our writers, then these keys belong to the run and are not values.
  if (has_own || run.world_size) {
    for (const auto* key : {"step", "world_size"}) values.erase(key);
  }
  if (has_own) {
    const auto made = maker.make(*own);
    run.own_values = dump(made);
    values.update(made);
  }
  run.values = dump(values);
}

template <typename Number>
std::optional<double> first_number(std::string_view bytes) {
  if (bytes.size() < sizeof(Number)) return std::nullopt;
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return static_cast<double>(number);
}

}  // namespace

std::optional<std::string> optimizer_name(std::string_view key) {
  if (std::ranges::find(kMainOptimizer, key) != kMainOptimizer.end()) return "";
  for (const std::string_view prefix : {"optimizer_", "optim_"}) {
    if (key.starts_with(prefix) && key != "optimizer_states") return std::string(key.substr(prefix.size()));
  }
  for (const std::string_view suffix : {"_optimizer", "_optim"}) {
    if (key.ends_with(suffix)) return std::string(key.substr(0, key.size() - suffix.size()));
  }
  return std::nullopt;
}

bool is_rest_key(std::string_view key) {
  const Keys own = {"shared", "per_rank", "values"};
  return std::ranges::any_of(std::array{&kScaler, &kSchedule, &kSampler, &own},
                             [&](const Keys* keys) { return std::ranges::find(*keys, key) != keys->end(); });
}

const Value& select(const Value& root, const std::string& key) {
  const Value* value = &root;
  for (size_t begin = 0; begin <= key.size();) {
    const auto end = std::min(key.find('.', begin), key.size());
    const auto* next = value->is(Kind::kDict) ? value->find(std::string_view(key).substr(begin, end - begin)) : nullptr;
    if (next == nullptr) {
      std::string there;
      if (value->is(Kind::kDict)) {
        const auto& items = value->items();  // in the file's order
        for (size_t i = 0; i + 1 < items.size() && there.size() < 200; i += 2) {
          if (const auto name = key_text(items[i])) detail::append_item(there, safetensors::quote_name(*name));
        }
      }
      throw FormatError("it has no entry " + safetensors::quote_name(key) +
                        "; its entries: " + (there.empty() ? "none" : there));
    }
    value = next;
    begin = end + 1;
  }
  return *value;
}

std::optional<double> number_in(std::string_view dtype, std::string_view bytes) {
  if (dtype == "float32") return first_number<float>(bytes);
  if (dtype == "float64") return first_number<double>(bytes);
  if (dtype == "int64") return first_number<int64_t>(bytes);
  return dtype == "int32" ? first_number<int32_t>(bytes) : std::nullopt;
}

ScalarReader scalar_reader(const PtFile& file) {
  return [&file](const TensorEntry& entry) -> std::optional<double> {
    for (const auto size : entry.sizes) {
      if (size != 1) return std::nullopt;
    }
    return number_in(entry.dtype, file.bytes_of(entry));
  };
}

RunState find_run(const PtFile& file, const std::string& model_key) {
  const auto& root = file.root();
  const auto read_scalar = scalar_reader(file);
  RunState run;
  if (!root.is(Kind::kDict)) {
    add_model(root, model_key, read_scalar, run);
    return run;
  }
  if (is_optimizer(root)) {
    run.optimizers.emplace("", find_state(root, read_scalar));
    return run;
  }
  add_optimizers(root, read_scalar, run);
  add_model(root, model_key, read_scalar, run);
  add_rest(root, read_scalar, run);
  return run;
}

void add_rest(const Value& root, const ScalarReader& read_scalar, RunState& run) {
  JsonMaker maker(read_scalar, /*names_infinities=*/false), namer(read_scalar, /*names_infinities=*/true);
  const auto state = [&](const Keys& keys) {
    for (const auto key : keys) {
      const auto* found = root.find(key);
      if (found == nullptr) continue;
      const auto& value = sole_item(*found);
      // A string is only a name: {"scheduler": "cosine", "lr_scheduler": {…}}. Objects of a program's own classes are
      // bytes.
      if (!value.is(Kind::kBytes) && !value.is(Kind::kDict)) continue;
      run.read_keys.emplace(key);
      return value.is(Kind::kBytes) ? value.text() : dump(maker.make(value));
    }
    return std::string();
  };
  run.scaler = state(kScaler);
  run.schedule = state(kSchedule);
  run.sampler = state(kSampler);
  if (const auto* shared = root.find("shared")) run.shared = objects_of(*shared);
  if (const auto* ranks = root.find("per_rank"); ranks != nullptr && ranks->is(Kind::kList)) {
    for (const auto& rank : ranks->items()) run.per_rank.push_back(objects_of(rank));
  }
  add_rng(root, run);
  for (const auto* key : {"shared", "per_rank", "values"}) run.read_keys.emplace(key);
  if (!run.rng.empty()) run.read_keys.insert({"rng", "rng_state", "torch_rng_state", "cpu_rng_state"});
  for (const auto key : kStepKeys) {
    const auto* value = root.find(key);
    if (!run.step) run.step = whole(value);
    if (!run.step && value != nullptr && value->is(Kind::kForeign)) run.foreign_step = key;
  }
  if (run.step) run.foreign_step.clear();
  run.world_size = whole(root.find("world_size"));
  add_values(root, namer, run);
}

}  // namespace ddp::pt
