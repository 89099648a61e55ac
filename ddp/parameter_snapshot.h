// What a parameter was when its model was wrapped, to notice changes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace ddp {

class ParameterSnapshot {
 public:
  /// `tensor` may be undefined. It is not held.
  ParameterSnapshot(std::string name, const at::Tensor& tensor);

  const std::string& name() const { return name_; }
  /// A parameter that required gradients may be frozen now.
  bool is_same(const at::Tensor& now) const;
  /// Throws std::runtime_error that says how `now`, of the same name, differs. `rank` begins the message.
  [[noreturn]] void refuse(const at::Tensor& now, const std::string& rank) const;

 private:
  std::string name_;
  const c10::TensorImpl* identity_ = nullptr;  // null where it was undefined
  at::ScalarType dtype_ = at::ScalarType::Undefined;
  c10::Device device_{c10::kCPU};
  bool requires_grad_ = false;
  std::vector<int64_t> sizes_;
};

/// Throws std::runtime_error: "<rank>: <what> after the model was wrapped …", with the remedy.
[[noreturn]] void refuse_changed_model(const std::string& rank, const std::string& what);

}  // namespace ddp
