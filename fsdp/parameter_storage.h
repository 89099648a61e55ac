// The memory of a sharded parameter in the user's module, and how operators that are called with such a parameter are
// noticed: these tensors have a dispatch key of their own, whose kernel runs before all others.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

namespace c10 {
class OperatorHandle;
}

namespace ddp::fsdp {

class ParameterStorage;

/// An operator that is about to be called with sharded parameters, or with views of them.
struct ParameterUse {
  c10::SmallVector<ParameterStorage*, 4> parameters{};
  bool has_differentiable_input = false;  ///< another tensor among its arguments requires gradients
  bool is_deferred = false;               ///< one of its arguments is a tensor of deferred_init()
  ParameterStorage* written = nullptr;    ///< a parameter that it changes in place
  const c10::OperatorHandle* op = nullptr;
};

/// The model that has sharded parameters.
class ParameterOwner {
 public:
  virtual ~ParameterOwner() = default;
  ParameterOwner(const ParameterOwner&) = delete;
  ParameterOwner& operator=(const ParameterOwner&) = delete;

  /// Called before an operator uses parameters of this owner, in its caller's thread. Their memory has to be there when
  /// it returns. May throw.
  virtual void before_use(const ParameterUse& use) = 0;

 protected:
  ParameterOwner() = default;
};

/// Memory that is there only while it is needed. Its size is always that of the memory: LibTorch makes no views of what
/// is too small, and throws when what has no memory is read.
class ParameterStorage final : public c10::StorageImpl {
 public:
  ParameterStorage(ParameterOwner* owner, int unit, int parameter, size_t bytes, c10::Device device,
                   c10::Allocator* allocator);

  /// Null when the owner has ended.
  ParameterOwner* owner() const { return owner_; }
  void forget_owner() { owner_ = nullptr; }
  int unit() const { return unit_; }
  /// Its number in the unit.
  int parameter() const { return parameter_; }

  /// Gives it uninitialised memory if it has none.
  void allocate();
  /// Frees the memory; an access then throws. Otherwise code that reads the memory without operators, such as
  /// torch::save(), would read zeros.
  void free();
  bool has_memory() const { return has_memory_; }

 private:
  void set_refuses_access(bool refuses);

  ParameterOwner* owner_;
  int unit_;
  int parameter_;
  bool has_memory_ = false;
};

/// Gives `parameter` the memory of `storage`, which may be empty and on another device, the dtype `dtype` and the key
/// by which uses are noticed, in the same object: all who hold the tensor see it.
void move_into_storage(const at::Tensor& parameter, const c10::intrusive_ptr<ParameterStorage>& storage,
                       at::ScalarType dtype);

/// Registers the kernel that operators with such tensors meet, once in a process.
void register_operator_kernel();

/// The storage of a sharded parameter or of a view of one; null for all other tensors.
ParameterStorage* parameter_storage_of(const c10::TensorImpl& tensor);

}  // namespace ddp::fsdp
