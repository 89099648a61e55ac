// Everything that may hold a module: references to it, and the types of wrappers around it.
#include "ddprun/detail/comm/module_holder.h"

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <ddprun/comm/any_module_ref.h>

#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;
using torch::nn::Linear;
using torch::nn::LinearImpl;
using torch::nn::Module;

struct PlainNet : Module {
  int64_t forward(int64_t x) const { return x; }
};
struct DerivedHolder final : Linear {
  using Linear::Linear;
};

bool refers_to(const AnyModuleRef& reference, const Module& module) {
  return &reference.get() == &module;
}

TEST_CASE("AnyModuleRef: whatever holds a module refers to it") {
  Linear holder(1, 1);
  const Linear const_holder = holder;
  DerivedHolder derived(1, 1);
  PlainNet plain;
  auto shared = std::make_shared<PlainNet>();
  const std::shared_ptr<PlainNet> const_shared = shared;
  std::shared_ptr<Module> as_base = shared;
  auto unique = std::make_unique<PlainNet>();
  std::optional<PlainNet> optional(std::in_place);
  PlainNet* pointer = &plain;
  std::vector<std::shared_ptr<PlainNet>> list{shared};
  auto iterator = list.front();
  torch::nn::AnyModule any(holder);
  CHECK(refers_to(holder, *holder));
  CHECK(refers_to(const_holder, *holder));
  CHECK(refers_to(*holder, *holder));
  CHECK(refers_to(derived, *derived));
  CHECK(refers_to(plain, plain));
  CHECK(refers_to(shared, *shared));
  CHECK(refers_to(const_shared, *shared));
  CHECK(refers_to(as_base, *shared));
  CHECK(refers_to(unique, *unique));
  CHECK(refers_to(optional, *optional));
  CHECK(refers_to(pointer, plain));
  CHECK(refers_to(iterator, *shared));
  CHECK(refers_to(any, *holder));
}

TEST_CASE("AnyModuleRef: refuses every kind of empty holder") {
  Linear holder(nullptr);
  const Linear const_holder(nullptr);
  std::shared_ptr<PlainNet> shared;
  std::unique_ptr<PlainNet> unique;
  std::optional<PlainNet> optional;
  PlainNet* pointer = nullptr;
  torch::nn::AnyModule any;
  const auto refuses = [](auto& empty) {
    CHECK_THAT(error_of<std::invalid_argument>([&] { static_cast<void>(AnyModuleRef(empty)); }),
               ContainsSubstring("expected a module, got an empty holder of one"));
  };
  refuses(holder);
  refuses(const_holder);
  refuses(shared);
  refuses(unique);
  refuses(optional);
  refuses(pointer);
  refuses(any);
}

TEST_CASE("AnyModuleRef: nothing else converts to it") {
  CHECK_FALSE(std::is_convertible_v<int&, AnyModuleRef>);
  CHECK_FALSE(std::is_convertible_v<std::string&, AnyModuleRef>);
  CHECK_FALSE(std::is_convertible_v<std::shared_ptr<int>&, AnyModuleRef>);
  CHECK_FALSE(std::is_convertible_v<std::vector<Linear>&, AnyModuleRef>);
  UNSCOPED_INFO("nor what may not be changed, or would be gone at once");
  CHECK_FALSE(std::is_convertible_v<const PlainNet&, AnyModuleRef>);
  CHECK_FALSE(std::is_convertible_v<std::shared_ptr<const PlainNet>&, AnyModuleRef>);
  CHECK_FALSE(std::is_convertible_v<std::unique_ptr<PlainNet>, AnyModuleRef>);
}

TEST_CASE("ModuleHolder: each accepted type has its holder") {
  using detail::ModuleHolderOf;
  CHECK((std::is_same_v<ModuleHolderOf<Linear>, Linear>));
  CHECK((std::is_same_v<ModuleHolderOf<DerivedHolder>, DerivedHolder>));
  CHECK((std::is_same_v<ModuleHolderOf<PlainNet>, std::shared_ptr<PlainNet>>));
  CHECK((std::is_same_v<ModuleHolderOf<LinearImpl>, std::shared_ptr<LinearImpl>>));
  CHECK((std::is_same_v<ModuleHolderOf<std::shared_ptr<PlainNet>>, std::shared_ptr<PlainNet>>));
  CHECK((std::is_same_v<ModuleHolderOf<std::shared_ptr<Module>>, std::shared_ptr<Module>>));
  CHECK_FALSE(detail::kHoldsModule<std::shared_ptr<int>>);
  CHECK_FALSE(detail::kHoldsModule<int>);
  CHECK_FALSE(detail::kIsPlainModule<Linear>);
}

TEST_CASE("ModuleHolder: an empty holder has no module") {
  CHECK(detail::as_module(Linear(nullptr)) == nullptr);
  CHECK(detail::as_module(std::shared_ptr<PlainNet>()) == nullptr);
  const Linear holder(1, 1);
  CHECK(detail::as_module(holder).get() == holder.get());
}

TEST_CASE("ModuleHolder: a borrowed module is neither kept alive nor ended") {
  int ended = 0;
  struct Counting : Module {
    explicit Counting(int& count) : count_(count) {}
    ~Counting() override { ++count_; }
    int& count_;
  };
  {
    Counting net(ended);
    {
      const auto holder = detail::borrowed(net);
      CHECK(holder.get() == &net);
      CHECK(detail::as_module(holder).get() == &net);
    }
    CHECK(ended == 0);
  }
  CHECK(ended == 1);
}

}  // namespace
}  // namespace ddp
