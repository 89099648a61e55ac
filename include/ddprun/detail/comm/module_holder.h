// How a model is held that a wrapper (DistributedDataParallel, DataParallel) is given by its type: what is accepted,
// and one sentence for all else.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <type_traits>
#include <utility>

namespace ddp::detail {

template <typename Model>
inline constexpr bool kIsModuleHolder = false;
template <typename Contained>
inline constexpr bool kIsModuleHolder<std::shared_ptr<Contained>> = std::is_base_of_v<torch::nn::Module, Contained>;

template <typename Contained>
std::true_type derives_from_holder(const torch::nn::ModuleHolder<Contained>*);
std::false_type derives_from_holder(const void*);

/// TORCH_MODULE's types and std::shared_ptr to modules.
template <typename Model>
inline constexpr bool kHoldsModule =
    kIsModuleHolder<Model> || decltype(derives_from_holder(static_cast<Model*>(nullptr)))::value;

template <typename Model>
inline constexpr bool kIsPlainModule = std::is_base_of_v<torch::nn::Module, Model> && !kHoldsModule<Model>;

// Replaces a type that is not a model after the error about it, so that no further errors follow. Never defined.
struct NoModel {
  struct Contained {
    template <typename... Arguments>
    at::Tensor forward(Arguments&&... arguments);
  };
  template <typename Given>
  NoModel(Given&& given);
  Contained* operator->() const;
};
std::shared_ptr<torch::nn::Module> as_module(const NoModel& model);

// Names the holder without instantiating anything of another type.
template <typename Model, bool is_plain>
struct HolderOf {
  static_assert(is_plain || kHoldsModule<Model>,
                "the model's type must be one made by TORCH_MODULE, a std::shared_ptr to a module, or a class derived "
                "from torch::nn::Module");
  using Type =
      std::conditional_t<is_plain, std::shared_ptr<Model>, std::conditional_t<kHoldsModule<Model>, Model, NoModel>>;
};

/// What holds a model of this type in a wrapper: a TORCH_MODULE type or shared_ptr itself, a shared_ptr to a plain
/// class.
template <typename Model>
using ModuleHolderOf = typename HolderOf<Model, kIsPlainModule<Model>>::Type;

/// A holder for a model that its owner keeps alive.
template <typename Model>
std::shared_ptr<Model> borrowed(Model& model) {
  return {std::shared_ptr<void>(), &model};
}

/// The module in a holder; null when it is empty.
template <typename Contained>
std::shared_ptr<torch::nn::Module> as_module(const torch::nn::ModuleHolder<Contained>& holder) {
  return holder.is_empty() ? nullptr : holder.ptr();
}
template <typename Contained>
std::shared_ptr<torch::nn::Module> as_module(const std::shared_ptr<Contained>& pointer) {
  return pointer;
}

/// Throws std::logic_error: the clone() of the wrapper of this name, instead of LibTorch's, which advises what a
/// wrapper cannot do.
[[noreturn]] void refuse_to_clone(const char* wrapper);

}  // namespace ddp::detail
