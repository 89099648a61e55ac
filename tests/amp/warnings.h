// Collects LibTorch's warnings.
#pragma once

#include <c10/util/Exception.h>

#include <string>
#include <vector>

namespace ddp::test {

/// Those of the calling thread while it lives.
class Warnings final : private c10::WarningHandler {
 public:
  Warnings() = default;
  ~Warnings() override = default;
  Warnings(const Warnings&) = delete;
  Warnings& operator=(const Warnings&) = delete;

  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void process(const c10::Warning& warning) override { texts_.push_back(warning.msg()); }

  std::vector<std::string> texts_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace ddp::test
