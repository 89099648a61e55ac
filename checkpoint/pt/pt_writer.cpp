#include "checkpoint/pt/pt_writer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "base/json_float.h"
#include "checkpoint/core/lbfgs_fields.h"
#include "checkpoint/core/shallow_json.h"
#include "checkpoint/pt/crc32.h"
#include "checkpoint/pt/dtypes.h"
#include "checkpoint/pt/json_pickle.h"
#include "checkpoint/pt/pickler.h"
#include "checkpoint/pt/zip_writer.h"

namespace ddp::pt {
namespace {

using nlohmann::json;

// Storages in the order in which the pickle mentions them.
class Storages {
 public:
  void add(Pickler& pickler, const PtTensor& tensor) {
    const auto* dtype = dtype_by_name(tensor.dtype);
    if (dtype == nullptr) throw std::invalid_argument("a .pt file cannot store tensors of dtype " + tensor.dtype);
    // Tied weights: one storage, named by where its bytes are. Empty ones have no place. Of another dtype the same
    // bytes are another storage: torch.load gives a storage the dtype by which it meets it first.
    const void* place = tensor.stream.writer ? tensor.stream.identity : tensor.bytes.data();
    const auto size = tensor.size();
    const auto key = std::tuple(size == 0 ? nullptr : place, size, dtype->name);
    auto known = numbers_.find(key);
    if (known == numbers_.end() || size == 0) {
      known = numbers_.insert_or_assign(key, data_.size()).first;
      data_.push_back({.bytes = tensor.bytes, .stream = tensor.stream});
    }
    TensorEntry entry{.storage = std::to_string(known->second), .dtype = tensor.dtype, .sizes = tensor.sizes};
    entry.strides.resize(tensor.sizes.size());
    int64_t stride = 1;
    for (size_t i = tensor.sizes.size(); i-- > 0;) {
      entry.strides[i] = stride;
      stride *= std::max<int64_t>(tensor.sizes[i], 1);
    }
    pickler.tensor(entry, static_cast<int64_t>(size / dtype->bytes));
  }

  void write(ZipWriter& zip) const {
    for (size_t i = 0; i < data_.size(); ++i) {
      const auto name = "archive/data/" + std::to_string(i);
      if (data_[i].stream.writer) {
        zip.add_stream(name, data_[i].stream.size, data_[i].stream.writer);
      } else {
        zip.add(name, data_[i].bytes);
      }
    }
  }

 private:
  struct Data {
    std::string_view bytes{};
    PtStream stream{};
  };

  std::map<std::tuple<const void*, size_t, std::string_view>, size_t> numbers_;
  std::vector<Data> data_;
};

json parse(const std::string& text) {
  if (is_nested_deeper(text, kMaxJsonLevels)) {
    throw std::invalid_argument("an optimizer's description or a value is nested too deeply");
  }
  return json::parse(text);
}

void add_model(Pickler& pickler, Storages& storages, const std::vector<PtTensor>& tensors) {
  pickler.begin_dict();
  for (const auto& tensor : tensors) {
    pickler.text(tensor.name);
    storages.add(pickler, tensor);
  }
  pickler.end_dict();
}

// Options that Python's optimizers have and LibTorch's have not, at their defaults.
json python_defaults(const std::string& type) {
  json defaults = {{"maximize", false}, {"foreach", nullptr}, {"differentiable", false}, {"fused", nullptr}};
  constexpr std::array kCapturable = {"Adam",  "AdamW", "RMSprop", "Adadelta", "Adamax",
                                      "NAdam", "RAdam", "ASGD",    "Rprop"};
  if (std::find(kCapturable.begin(), kCapturable.end(), type) != kCapturable.end()) defaults["capturable"] = false;
  if (type == "LBFGS") return {{"maximize", false}, {"line_search_fn", nullptr}};
  if (type == "Adam" || type == "AdamW") {
    defaults["decoupled_weight_decay"] = type == "AdamW";
  }
  return defaults;
}

// Files from Python do not name the optimizer's type.
bool has_key_of_lbfgs(const json& root) {
  const auto& groups = root.at("param_groups");
  return groups.size() == 1 && groups.front().contains("tolerance_grad") && groups.front().contains("history_size");
}

std::string python_type(const json& root) {
  auto type = root.at("type").get<std::string>();
  return type.empty() && has_key_of_lbfgs(root) ? "LBFGS" : type;
}

std::optional<double> number_of(const PtTensor& tensor) {
  const auto as = [&](auto number) -> std::optional<double> {
    if (tensor.bytes.size() != sizeof(number)) return std::nullopt;
    std::memcpy(&number, tensor.bytes.data(), sizeof(number));
    return static_cast<double>(number);
  };
  if (tensor.dtype == "float32") return as(float());
  if (tensor.dtype == "float64") return as(double());
  return tensor.dtype == "int64" ? as(int64_t()) : std::nullopt;
}

// Writes LBFGS's lists as lists, and as numbers those fields that Python's LBFGS holds as numbers.
void add_lbfgs_state(Pickler& pickler, Storages& storages, const std::vector<const PtTensor*>& tensors) {
  std::map<std::string_view, std::map<size_t, const PtTensor*>> lists;
  bool has_stepped = false;
  for (const auto* tensor : tensors) {
    const auto field = field_of(tensor->name);
    if (const auto item = list_item(field)) {
      lists[item->list][item->index] = tensor;
      continue;
    }
    has_stepped |= field == "d";
    pickler.text(field);
    const auto number = number_of(*tensor);
    if (number && (field == "func_evals" || field == "n_iter")) {
      pickler.integer(static_cast<int64_t>(*number));
    } else if (number && (field == "t" || field == "prev_loss")) {
      pickler.real(*number);
    } else {
      storages.add(pickler, *tensor);
    }
  }
  if (!has_stepped) return;
  for (const std::string_view name : {"old_dirs", "old_stps", "ro"}) {
    pickler.text(name);
    pickler.begin_list();
    for (const auto& [index, tensor] : lists[name]) storages.add(pickler, *tensor);
    pickler.end_list();
  }
}

void add_defaults(json& root, const std::string& type) {
  const auto defaults = python_defaults(type);
  for (auto& group : root.at("param_groups")) {
    auto options = defaults;
    options.update(group);
    group = std::move(options);
  }
}

// Python numbers the parameters through all groups.
void add_groups(Pickler& pickler, const json& groups) {
  pickler.begin_list();
  int64_t number = 0;
  for (const auto& options : groups) {
    pickler.begin_dict();
    for (const auto& [name, value] : options.items()) {
      if (name == "params") continue;
      pickler.text(name);
      if (name == "betas") {
        pickler.begin_tuple();
        for (const auto& beta : value) pickle_json(pickler, beta);
        pickler.end_tuple();
      } else {
        pickle_json(pickler, value);
      }
    }
    pickler.text("params");
    pickler.begin_list();
    for (size_t i = 0; i < options.at("params").size(); ++i) pickler.integer(number++);
    pickler.end_list();
    pickler.end_dict();
  }
  pickler.end_list();
}

void add_optimizer(Pickler& pickler, Storages& storages, const PtOptimizer& optimizer) {
  auto root = parse(optimizer.groups);
  const auto type = python_type(root);
  const bool is_lbfgs = type == "LBFGS";

  // Python numbers the parameters through all groups.
  std::map<std::string, std::vector<const PtTensor*>> by_parameter;
  for (const auto& tensor : optimizer.tensors) {
    const auto field = field_of(tensor.name);
    by_parameter[tensor.name.substr(0, tensor.name.size() - field.size() - 1)].push_back(&tensor);
  }
  pickler.begin_dict();
  pickler.text("state");
  pickler.begin_dict();
  int64_t number = 0;
  for (const auto& group : root.at("param_groups")) {
    for (const auto& parameter : group.at("params")) {
      const auto found = by_parameter.find("state." + parameter.get<std::string>());
      if (found != by_parameter.end()) {
        pickler.integer(number);
        pickler.begin_dict();
        if (is_lbfgs) {
          add_lbfgs_state(pickler, storages, found->second);
        } else {
          for (const auto* tensor : found->second) {
            pickler.text(field_of(tensor->name));
            storages.add(pickler, *tensor);
          }
        }
        pickler.end_dict();
      }
      ++number;
    }
  }
  pickler.end_dict();

  pickler.text("param_groups");
  add_defaults(root, type);
  add_groups(pickler, root.at("param_groups"));
  pickler.end_dict();
}

void add_objects(Pickler& pickler, const std::map<std::string, std::string>& objects) {
  for (const auto& [name, bytes] : objects) {
    pickler.text(name);
    pickler.bytes(bytes);
  }
}

void add_optimizers(Pickler& pickler, Storages& storages, const PtContents& contents) {
  const auto main = contents.optimizers.find("");
  if (main != contents.optimizers.end()) {
    pickler.text("optimizer");
    add_optimizer(pickler, storages, main->second);
  }
  if (contents.optimizers.size() == contents.optimizers.count("")) return;
  pickler.text("optimizers");
  pickler.begin_dict();
  for (const auto& [name, optimizer] : contents.optimizers) {
    if (name.empty()) continue;
    pickler.text(name);
    add_optimizer(pickler, storages, optimizer);
  }
  pickler.end_dict();
}

void add_ranks(Pickler& pickler, Storages& storages, const PtContents& contents) {
  if (!contents.rng.empty()) {
    pickler.text("rng");
    pickler.begin_list();
    for (const auto& devices : contents.rng) add_model(pickler, storages, devices);
    pickler.end_list();
  }
  if (!contents.per_rank.empty()) {
    pickler.text("per_rank");
    pickler.begin_list();
    for (const auto& objects : contents.per_rank) {
      pickler.begin_dict();
      add_objects(pickler, objects);
      pickler.end_dict();
    }
    pickler.end_list();
  }
  if (!contents.shared.empty()) {
    pickler.text("shared");
    pickler.begin_dict();
    add_objects(pickler, contents.shared);
    pickler.end_dict();
  }
  add_objects(pickler, contents.objects);
}

void add_values(Pickler& pickler, const PtContents& contents) {
  if (contents.values.empty()) return;
  const auto values = parse(contents.values);
  const auto taken = part_names(contents);
  for (const auto& [name, value] : values.items()) {
    if (taken.contains(name))
      throw std::invalid_argument("a value cannot be saved as '" + name + "': another entry of the file has this name");
    pickler.text(name);
    pickle_json(pickler, value);
  }
}

bool is_model_alone(const PtContents& contents) {
  return contents.optimizers.empty() && contents.values.empty() && contents.rng.empty() && contents.per_rank.empty() &&
         contents.shared.empty() && contents.objects.empty();
}

}  // namespace

std::string with_python_defaults(const std::string& groups) {
  try {
    auto root = parse(groups);
    add_defaults(root, python_type(root));
    return root.dump();
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("an optimizer's description is damaged: ") + error.what());
  }
}

void pickle_json(Pickler& pickler, const json& value) {
  if (value.is_null()) {
    pickler.none();
  } else if (value.is_boolean()) {
    pickler.boolean(value.get<bool>());
  } else if (value.is_number_unsigned()) {
    pickler.whole_number(value.get<uint64_t>());
  } else if (value.is_number_integer()) {
    pickler.integer(value.get<int64_t>());
  } else if (value.is_number()) {
    pickler.real(value.get<double>());
  } else if (value.is_string()) {
    pickler.text(value.get<std::string>());
  } else if (value.is_array()) {
    pickler.begin_list();
    for (const auto& item : value) pickle_json(pickler, item);
    pickler.end_list();
  } else if (const auto number = named_float(value)) {
    pickler.real(*number);
  } else {
    pickler.begin_dict();
    for (const auto& [name, item] : value.items()) {
      pickler.text(name);
      pickle_json(pickler, item);
    }
    pickler.end_dict();
  }
}

std::set<std::string> part_names(const PtContents& contents) {
  std::set<std::string> names;
  const auto add = [&](const char* name, bool is_there) {
    if (is_there) names.insert(name);
  };
  add("model", !contents.model.empty());
  add("optimizer", contents.optimizers.contains(""));
  add("optimizers", contents.optimizers.size() > contents.optimizers.count(""));
  add("rng", !contents.rng.empty());
  add("per_rank", !contents.per_rank.empty());
  add("shared", !contents.shared.empty());
  for (const auto& [name, bytes] : contents.objects) {
    if (!names.insert(name).second)
      throw std::invalid_argument("an object cannot be saved as '" + name +
                                  "': another entry of the file has this name");
  }
  return names;
}

void write_pt(storage::ByteSink& sink, const PtContents& contents) {
  Pickler pickler;
  Storages storages;
  try {
    if (is_model_alone(contents)) {
      add_model(pickler, storages, contents.model);
    } else {
      pickler.begin_dict();
      if (!contents.model.empty()) {
        pickler.text("model");
        add_model(pickler, storages, contents.model);
      }
      add_optimizers(pickler, storages, contents);
      add_ranks(pickler, storages, contents);
      add_values(pickler, contents);
      pickler.end_dict();
    }
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("an optimizer's description or a value is damaged: ") + error.what());
  }
  ZipWriter zip(sink);
  zip.add("archive/data.pkl", pickler.take());
  zip.add("archive/byteorder", "little");
  storages.write(zip);
  zip.add("archive/version", "3\n");
  zip.finish();
}

}  // namespace ddp::pt
