// A model whose inputs and outputs have the types of its optimization level. Reference: what apex.amp.initialize did to
// a model's forward.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include <ddprun/amp/cast_scope.h>
#include <ddprun/comm/module_holder.h>
#include <ddprun/comm/output_tensors.h>

namespace ddp::amp {

namespace detail {

struct AmpState;

/// What a model's forward has to know.
class ForwardRules {
 public:
  explicit ForwardRules(std::shared_ptr<const AmpState> state);
  /// To be called before each forward.
  void begin() const;
  CastScope scope() const;
  const std::optional<c10::ScalarType>& input_type() const { return input_type_; }
  const std::optional<c10::ScalarType>& output_type() const { return output_type_; }

 private:
  std::shared_ptr<const AmpState> state_;
  std::optional<c10::ScalarType> input_type_, output_type_;
};

/// Casts the floating-point tensors in `value`. Tensors that it holds const are left.
template <typename Value>
void cast_tensors(Value& value, c10::ScalarType type) {
  for_each_tensor(value, [type](auto& tensor) {
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(tensor)>>) {
      if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(type);
    }
  });
}

/// Whether a forward's argument is copied to cast the tensors in it; all others are passed on as they are. What is
/// behind a pointer belongs to the caller.
template <typename Argument>
constexpr bool is_cast_argument() {
  using Plain = std::remove_cvref_t<Argument>;
  if constexpr (ddp::detail::WithoutTensors<Plain> || !std::is_constructible_v<Plain, Argument>) {
    return false;
  } else {
    return ddp::detail::HasVisitTensors<Plain> || !ddp::detail::PointerLike<Plain>;
  }
}

template <typename Argument>
decltype(auto) cast_argument(Argument&& argument, const std::optional<c10::ScalarType>& type) {
  if constexpr (is_cast_argument<Argument>()) {
    std::remove_cvref_t<Argument> copy(std::forward<Argument>(argument));
    if (type) cast_tensors(copy, *type);
    return copy;
  } else {
    return std::forward<Argument>(argument);
  }
}

template <typename Argument>
using CastArgument = decltype(cast_argument(std::declval<Argument>(), std::declval<std::optional<c10::ScalarType>>()));

template <typename Holder, typename... Arguments>
using CastForwardResult =
    std::remove_cvref_t<decltype(std::declval<Holder&>()->forward(std::declval<CastArgument<Arguments>>()...))>;

}  // namespace detail

/// What a Model holder points to. `Holder` is the model's own holder: a TORCH_MODULE type such as `Net`, or
/// `std::shared_ptr<NetImpl>`.
template <typename Holder>
class ModelImpl : public torch::nn::Module {
 public:
  ModelImpl(Holder module, detail::ForwardRules rules)
      : torch::nn::Module("amp::Model"), module_(std::move(module)), rules_(std::move(rules)) {
    this->register_module("module", module_);
  }

  /// Calls the model's forward with the floating-point tensors in `arguments` cast to its type (in vectors, tuples,
  /// maps, structs … too, see <ddprun/comm/output_tensors.h>, but not behind pointers), and returns what it
  /// returns with tensors cast to float32 or `cast_model_outputs`. At O1 nothing is cast; the forward runs in autocast.
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) -> detail::CastForwardResult<Holder, Arguments...> {
    using Result = detail::CastForwardResult<Holder, Arguments...>;
    rules_.begin();
    const CastScope scope = rules_.scope();
    if constexpr (std::is_void_v<Result>) {
      module_->forward(detail::cast_argument(std::forward<Arguments>(arguments), rules_.input_type())...);
    } else {
      Result result =
          module_->forward(detail::cast_argument(std::forward<Arguments>(arguments), rules_.input_type())...);
      if (rules_.output_type()) detail::cast_tensors(result, *rules_.output_type());
      return result;
    }
  }

  /// The model itself, shared with the caller: parameter names without "module.".
  Holder& module() { return module_; }
  const Holder& module() const { return module_; }

  /// A wrapper cannot be cloned: throws std::logic_error, which says what can.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<c10::Device>& /*device*/ = std::nullopt) const override {
    ddp::detail::refuse_to_clone("amp::Model");
  }

 private:
  Holder module_;
  detail::ForwardRules rules_;
};

/// The model to call, and to wrap in DistributedDataParallel; Amp::model() makes it. It shares the parameters with the
/// model inside, and keeps what initialize() made alive.
template <typename Holder>
class Model : public torch::nn::ModuleHolder<ModelImpl<Holder>> {
 public:
  using Impl = ModelImpl<Holder>;

  explicit Model(std::nullptr_t) : torch::nn::ModuleHolder<Impl>(nullptr) {}
  Model(Holder module, detail::ForwardRules rules)
      : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(std::move(module), std::move(rules))) {}

  /// The same as `->forward(…)`.
  template <typename... Arguments>
  decltype(auto) operator()(Arguments&&... arguments) {
    return (*this)->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace ddp::amp
