#include "comm/group/first_calls.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/acos.h>
#include <ATen/ops/asin.h>
#include <ATen/ops/atan.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cosh.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/erfc.h>
#include <ATen/ops/erfinv.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lgamma.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log10.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/sinh.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/tan.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/trunc.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>

namespace ddp::detail {
namespace {

using Function = at::Tensor (*)(const at::Tensor&);

constexpr Function kVectorFunctions[] = {
    at::acos, at::asin,  at::atan,  at::cos,  at::cosh, at::erf,  at::erfc, at::erfinv, at::exp,  at::expm1, at::lgamma,
    at::log,  at::log10, at::log1p, at::log2, at::sin,  at::sinh, at::sqrt, at::tan,    at::tanh, at::trunc,
};

void call_all(at::ScalarType type) {
  const at::Tensor numbers = at::full({4, 4}, 0.5, type);
  for (const Function function : kVectorFunctions) function(numbers);
  at::pow(numbers, numbers);
}

}  // namespace

void make_first_calls() {
  static std::once_flag once;
  std::call_once(once, [] {
    const at::NoGradGuard no_grad;
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
    call_all(at::kFloat);
    call_all(at::kDouble);
  });
}

}  // namespace ddp::detail
