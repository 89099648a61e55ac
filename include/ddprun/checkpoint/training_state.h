// What a checkpoint of a whole training run holds: models, optimizers, anything that can save and load itself, and
// plain values.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/comm/any_module_ref.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace torch::optim {
class Optimizer;
}

namespace ddp {

/// One model, in any form that AnyModuleRef takes, or several with names; none by default.
///
///     .model = net
///     .model = {{"generator", generator}, {"discriminator", discriminator}}
///
/// Names consist of letters, digits, `_` and `-`. A named model's tensors have its name and a dot before theirs in a
/// checkpoint: "generator.conv1.weight". The models are not owned and must outlive the references.
class ModelRefs {
 public:
  /// A name and the model that it belongs to.
  using Named = std::pair<std::string, AnyModuleRef>;

  /// No model.
  ModelRefs() = default;
  /// No model.
  ModelRefs(std::nullopt_t) {}
  /// One model, without a name.
  ModelRefs(AnyModuleRef model) : models_{{"", model}} {}
  /// One model, without a name, in any form that AnyModuleRef takes. Throws std::invalid_argument for an empty holder.
  template <typename Model>
  requires(!std::same_as<std::remove_const_t<Model>, ModelRefs> &&
           !std::same_as<std::remove_const_t<Model>, AnyModuleRef> && std::constructible_from<AnyModuleRef, Model&>)
      ModelRefs(Model& model)
      : models_{{"", AnyModuleRef(model)}} {}
  /// Throws std::invalid_argument for a name that is empty, given twice or of other characters.
  ModelRefs(std::initializer_list<Named> models);

  /// Whether there is a model.
  bool has_value() const { return !models_.empty(); }
  /// has_value().
  explicit operator bool() const { return has_value(); }

  /// In the order in which they were given; a single model's name is empty.
  const std::vector<Named>& all() const { return models_; }

 private:
  std::vector<Named> models_;
};

namespace detail {

std::string save_module(const torch::nn::Module& module);
void load_module(const std::string& bytes, torch::nn::Module& module);
std::string save_archive(const std::function<void(torch::serialize::OutputArchive&)>& save);
void load_archive(const std::string& bytes, const std::function<void(torch::serialize::InputArchive&)>& load);

template <typename Object>
concept SavesText = requires(Object& object, const std::string& bytes) {
  { object.save() } -> std::convertible_to<std::string>;
  object.load(bytes);
};

template <typename Object>
concept SavesArchive = requires(Object& object, torch::serialize::OutputArchive& out,
                                torch::serialize::InputArchive& in) {
  object.save(out);
  object.load(in);
};

template <typename Object>
concept HoldsModule = !SavesText<Object> && !SavesArchive<Object> && std::constructible_from<AnyModuleRef, Object&>;

template <typename Object>
concept MayBeMissing = requires {
  requires static_cast<bool>(Object::kMayBeMissing);
};

}  // namespace detail

/// Refers to an object with `std::string save() const` and `load(const std::string&)`, or with LibTorch's
/// `save(OutputArchive&) const` and `load(InputArchive&)` (include torch/serialize.h to use the latter). load() must
/// either load the whole state or throw and change nothing. Can also refer to a holder of a module (TORCH_MODULE types,
/// std::shared_ptr, wrappers): the module's parameters and buffers are saved, as the bytes of a safetensors file, and
/// loaded on the module's own device. The object must outlive the reference. If a checkpoint has no state for the
/// object, the load throws, unless the object's class declares `static constexpr bool kMayBeMissing = true`; then the
/// object is unchanged.
class Stateful {
 public:
  /// Refers to nothing; a checkpoint then has no such part.
  Stateful() = default;

  /// Refers to `object`, which has save() and load().
  template <typename Object>
  requires(!std::same_as<Object, Stateful> && (detail::SavesText<Object> || detail::SavesArchive<Object>))
      Stateful(Object& object)
      : may_be_missing_(detail::MayBeMissing<Object>) {
    if constexpr (detail::SavesText<Object>) {
      save_ = [&object] { return std::string(object.save()); };
      load_ = [&object](const std::string& bytes) { object.load(bytes); };
    } else {
      save_ = [&object] { return detail::save_archive([&](auto& archive) { object.save(archive); }); };
      load_ = [&object](const std::string& bytes) {
        detail::load_archive(bytes, [&](auto& archive) { object.load(archive); });
      };
    }
  }

  /// Throws std::invalid_argument for an empty holder.
  template <typename Holder>
  requires(!std::same_as<std::remove_const_t<Holder>, Stateful> && detail::HoldsModule<Holder>)
      Stateful(Holder& holder) {
    torch::nn::Module* module = &AnyModuleRef(holder).get();
    save_ = [module] { return detail::save_module(*module); };
    load_ = [module](const std::string& bytes) { detail::load_module(bytes, *module); };
  }

  /// The same for an object that lives as long as the reference.
  template <typename Object>
  static Stateful owning(std::shared_ptr<Object> object) {
    Stateful ref(*object);
    ref.owner_ = std::move(object);
    return ref;
  }

  /// Whether it refers to anything.
  explicit operator bool() const { return static_cast<bool>(save_); }
  /// The object's state as bytes. Throws what the object's save() throws.
  std::string save() const { return save_(); }
  /// Gives the object a state that save() has returned. Throws what the object's load() throws.
  void load(const std::string& bytes) const { load_(bytes); }
  bool may_be_missing() const { return may_be_missing_; }  ///< in a checkpoint that is loaded

 private:
  std::function<std::string()> save_;
  std::function<void(const std::string&)> load_;
  std::shared_ptr<void> owner_;
  bool may_be_missing_ = false;
};

/// A value that is a JSON array, object or null, as text.
struct JsonText {
  std::string text{};  ///< one JSON value, of any kind
};

/// Values by name: `values["best"] = 0.71; values.get<double>("best")`.
class CheckpointValues {
 public:
  /// A whole number is stored as int64_t if its value fits, else as uint64_t.
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string, JsonText>;

  /// Any integer, floating-point number, text or JsonText.
  template <typename Given>
  void set(const std::string& name, Given&& value) {
    using Plain = std::remove_cvref_t<Given>;
    if constexpr (std::is_same_v<Plain, bool> || std::is_same_v<Plain, JsonText>) {
      values_[name] = value;
    } else if constexpr (std::is_integral_v<Plain> && (std::is_same_v<Plain, char> || std::is_same_v<Plain, wchar_t>)) {
      values_[name] = static_cast<int64_t>(value);  // not numbers to std::in_range
    } else if constexpr (std::is_integral_v<Plain>) {
      if (std::in_range<int64_t>(value)) {
        values_[name] = static_cast<int64_t>(value);
      } else {
        values_[name] = static_cast<uint64_t>(value);
      }
    } else if constexpr (std::is_floating_point_v<Plain>) {
      values_[name] = static_cast<double>(value);
    } else {
      values_[name] = std::string(value);
    }
  }

  /// Whether there is a value of that name.
  bool contains(const std::string& name) const { return values_.count(name) != 0; }

  /// `Wanted` is bool, int64_t, uint64_t, double, std::string or JsonText; a whole number serves as a double. Throws
  /// std::out_of_range when there is no such value and std::invalid_argument when it is of another kind, or a whole
  /// number that `Wanted` cannot hold.
  template <typename Wanted>
  Wanted get(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::out_of_range("the checkpoint holds no value named '" + name + "'");
    if (const auto* value = std::get_if<Wanted>(&found->second)) return *value;
    if constexpr (std::is_same_v<Wanted, double>) {
      if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
      if (const auto* whole = std::get_if<uint64_t>(&found->second)) return static_cast<double>(*whole);
    }
    if constexpr (std::is_same_v<Wanted, int64_t>) {
      if (const auto* whole = std::get_if<uint64_t>(&found->second)) refuse_number(name, std::to_string(*whole));
    }
    if constexpr (std::is_same_v<Wanted, uint64_t>) {
      if (const auto* whole = std::get_if<int64_t>(&found->second)) {
        if (*whole < 0) refuse_number(name, std::to_string(*whole));
        return static_cast<uint64_t>(*whole);
      }
    }
    throw std::invalid_argument("the checkpoint's value '" + name + "' has a different type than the requested one");
  }

  /// The same with a fallback for a value that is not there.
  template <typename Wanted>
  Wanted get(const std::string& name, Wanted fallback) const {
    return contains(name) ? get<Wanted>(name) : fallback;
  }

  /// All values, by name.
  const std::map<std::string, Value>& all() const { return values_; }

  /// Returns one JSON object. Infinity and NaN, which JSON lacks, are written as {"__float__": "inf"}, "-inf" or "nan".
  /// Throws std::invalid_argument for text that is not UTF-8 or a JsonText that is not JSON.
  std::string to_json() const;

  /// Reads the text that to_json() wrote. Throws std::invalid_argument if `text` is not a JSON object, or if a whole
  /// number at any depth does not fit into 64 bits.
  static CheckpointValues from_json(std::string_view text);

 private:
  [[noreturn]] static void refuse_number(const std::string& name, const std::string& number) {
    throw std::invalid_argument("the checkpoint's value '" + name + "' is " + number +
                                ", which does not fit into the requested type");
  }

  std::map<std::string, Value> values_;
};

/// A reference to an optimizer that can be kept in a map.
using OptimizerRef = std::reference_wrapper<torch::optim::Optimizer>;

/// Every part is optional. Names of optimizers and objects are part of file names: letters, digits, `.`, `_`, `-`.
struct TrainingState {
  ModelRefs model = {};  ///< one, or several by name: `.model = {{"generator", generator}, {"critic", critic}}`
  /// Any of ddp::optim, or SGD, Adam, AdamW, Adagrad or RMSprop of torch::optim, over parameters of `model`.
  std::optional<OptimizerRef> optimizer = std::nullopt;
  std::map<std::string, OptimizerRef> optimizers = {};  ///< further ones, by name; each over parameters of any model

  // The following are equal on all ranks: rank 0's state is saved, and every rank loads it.
  Stateful scaler = {};                         ///< a GradScaler or an Amp
  Stateful schedule = {};                       ///< an LrScheduler or ReduceLROnPlateau
  Stateful sampler = {};                        ///< a loader or its sampler; must count the samples of all ranks,
                                                ///< which must have used as many at a save
  std::map<std::string, Stateful> shared = {};  ///< other objects by name, also modules and further optimizers

  /// Objects whose state differs from rank to rank. Every rank's state is saved. It is loaded only if the world size is
  /// the same.
  std::map<std::string, Stateful> per_rank = {};

  CheckpointValues values = {};  ///< rank 0's
  /// Whether the states of every rank's random generators (the CPU's and those of the group's device) are saved and
  /// loaded. If the world size has changed, each rank gets a new stream that is derived from a saved state, the rank
  /// and the step.
  bool rng = true;
};

}  // namespace ddp
