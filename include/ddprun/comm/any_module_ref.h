// A reference to a module, whatever type holds the module.
#pragma once

#include <concepts>
#include <stdexcept>

namespace torch::nn {
class Module;
}

namespace ddp {

/// Refers to a module. It is constructed from the module itself or from anything that holds it: `net`, `*net`, a
/// shared_ptr, a wrapper. Throws std::invalid_argument for an empty holder.
class AnyModuleRef {
 public:
  /// The module itself.
  AnyModuleRef(torch::nn::Module& module) : module_(&module) {}
  /// The module that a holder points to: a TORCH_MODULE type, a std::shared_ptr, a wrapper.
  template <typename Holder>
  requires requires(Holder& holder) {
    { *holder } -> std::convertible_to<torch::nn::Module&>;
  }
  AnyModuleRef(Holder& holder) : module_(&static_cast<torch::nn::Module&>(*held(holder))) {}
  /// A const LibTorch holder, such as a const model->module(), dereferences to a const module, but its ptr() gives a
  /// non-const one.
  template <typename Holder>
  requires(
      !requires(Holder & holder) {
        { *holder } -> std::convertible_to<torch::nn::Module&>;
      } &&
      requires(Holder & holder) {
        { *holder.ptr() } -> std::convertible_to<torch::nn::Module&>;
      }) AnyModuleRef(Holder& holder)
      : module_(&static_cast<torch::nn::Module&>(*held(holder).ptr())) {}

  /// The module.
  torch::nn::Module& get() const { return *module_; }

 private:
  template <typename Holder>
  static Holder& held(Holder& holder) {
    bool is_empty = false;
    if constexpr (requires { static_cast<bool>(holder); }) {
      is_empty = !static_cast<bool>(holder);
    } else if constexpr (requires { holder.is_empty(); }) {  // torch::nn::AnyModule
      is_empty = holder.is_empty();
    }
    if (is_empty) throw std::invalid_argument("expected a module, got an empty holder of one");
    return holder;
  }

  torch::nn::Module* module_;
};

}  // namespace ddp
