// A reference to anything that can save and load itself, whatever its type.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <ddprun/comm/any_module_ref.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace ddp {

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
/// either take the state over or throw and change nothing. Also refers to what holds a module (TORCH_MODULE types,
/// std::shared_ptr, wrappers): its parameters and buffers are saved, as the bytes of a safetensors file, and loaded on
/// the module's own device. The object must outlive the reference. One whose class says `static constexpr bool
/// kMayBeMissing = true` is left as it is by a checkpoint without it, which is refused otherwise.
class Stateful {
 public:
  Stateful() = default;

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

  explicit operator bool() const { return static_cast<bool>(save_); }
  std::string save() const { return save_(); }
  void load(const std::string& bytes) const { load_(bytes); }
  bool may_be_missing() const { return may_be_missing_; }  ///< in a checkpoint that is loaded

 private:
  std::function<std::string()> save_;
  std::function<void(const std::string&)> load_;
  std::shared_ptr<void> owner_;
  bool may_be_missing_ = false;
};

}  // namespace ddp
