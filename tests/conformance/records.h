// What a training did, for a comparison bit by bit: each tensor as a line with its name, dtype and shape, and its
// bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace conformance {

class Records {
 public:
  explicit Records(const std::string& path) : file_(path, std::ios::binary) {
    if (!file_) throw std::runtime_error("cannot write " + path);
  }

  void tensor(const std::string& name, at::Tensor tensor) {
    if (!tensor.defined()) {
      file_ << name << "|none||0\n";
      return;
    }
    tensor = tensor.detach();
    if (tensor.is_sparse()) tensor = tensor.to_dense();
    tensor = tensor.contiguous();
    file_ << name << '|' << python_name(tensor.scalar_type()) << '|';
    for (int64_t i = 0; i < tensor.dim(); ++i) file_ << (i == 0 ? "" : ",") << tensor.size(i);
    file_ << '|' << tensor.nbytes() << '\n';
    file_.write(static_cast<const char*>(tensor.const_data_ptr()), static_cast<std::streamsize>(tensor.nbytes()));
  }
  void number(const std::string& name, double value) { tensor(name, torch::tensor(value, torch::kDouble)); }

  void close() {
    if (!file_.flush()) throw std::runtime_error("cannot write the records");
  }

 private:
  static std::string python_name(c10::ScalarType type) {
    switch (type) {
      case c10::ScalarType::Float:
        return "float32";
      case c10::ScalarType::Double:
        return "float64";
      case c10::ScalarType::Half:
        return "float16";
      case c10::ScalarType::BFloat16:
        return "bfloat16";
      case c10::ScalarType::Long:
        return "int64";
      default:
        return c10::toString(type);
    }
  }

  std::ofstream file_;
};

}  // namespace conformance
