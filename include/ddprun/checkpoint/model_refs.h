// References to the models of a training run: one, or several by name.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/comm/any_module_ref.h>

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
  using Named = std::pair<std::string, AnyModuleRef>;

  ModelRefs() = default;
  ModelRefs(std::nullopt_t) {}
  ModelRefs(AnyModuleRef model) : models_{{"", model}} {}
  template <typename Model>
  requires(!std::same_as<std::remove_const_t<Model>, ModelRefs> &&
           !std::same_as<std::remove_const_t<Model>, AnyModuleRef> && std::constructible_from<AnyModuleRef, Model&>)
      ModelRefs(Model& model)
      : models_{{"", AnyModuleRef(model)}} {}
  /// Throws std::invalid_argument for a name that is empty, given twice or of other characters.
  ModelRefs(std::initializer_list<Named> models);

  bool has_value() const { return !models_.empty(); }
  explicit operator bool() const { return has_value(); }

  /// In the order in which they were given; a single model's name is empty.
  const std::vector<Named>& all() const { return models_; }

 private:
  std::vector<Named> models_;
};

}  // namespace ddp
