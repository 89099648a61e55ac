// What modules_program runs: each module and function of torch::nn under the name that modules_test.py knows it by.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ddp::test {

using Tensors = std::vector<at::Tensor>;

/// `module` is null for a function.
struct Subject {
  std::shared_ptr<torch::nn::Module> module{};
  std::function<Tensors(Tensors&)> forward{};
};

using Subjects = std::map<std::string, std::function<Subject()>>;

inline void append(Tensors& list, const at::Tensor& tensor) {
  if (tensor.defined()) list.push_back(tensor);
}
template <typename... Items>
void append(Tensors& list, const std::tuple<Items...>& items) {
  std::apply([&](const auto&... item) { (append(list, item), ...); }, items);
}

template <typename Result>
Tensors list_of(const Result& result) {
  Tensors list;
  append(list, result);
  return list;
}

/// A module whose forward() takes as many tensors as the case has inputs.
template <typename Holder>
Subject subject_of(Holder holder) {
  return {holder.ptr(), [holder](Tensors& x) mutable {
            if constexpr (requires { holder->forward(x[0]); }) {
              if (x.size() == 1) return list_of(holder->forward(x[0]));
            }
            if constexpr (requires { holder->forward(x[0], x[1]); }) {
              if (x.size() == 2) return list_of(holder->forward(x[0], x[1]));
            }
            if constexpr (requires { holder->forward(x[0], x[1], x[2]); }) {
              if (x.size() == 3) return list_of(holder->forward(x[0], x[1], x[2]));
            }
            if constexpr (requires { holder->forward(x[0], x[1], x[2], x[3]); }) {
              if (x.size() == 4) return list_of(holder->forward(x[0], x[1], x[2], x[3]));
            }
            throw std::invalid_argument("the module takes another number of inputs");
          }};
}

template <typename Holder, typename... Arguments>
std::function<Subject()> make(Arguments... arguments) {
  return [=] { return subject_of(Holder(arguments...)); };
}

/// A module that is called in a way of its own.
template <typename Make, typename Call>
std::function<Subject()> make_with(Make make_holder, Call call) {
  return [=]() -> Subject {
    auto holder = make_holder();
    return {holder.ptr(), [holder, call](Tensors& x) mutable { return list_of(call(holder, x)); }};
  };
}

template <typename Function>
std::function<Subject()> function(Function call) {
  return [=]() -> Subject { return {nullptr, [call](Tensors& x) { return list_of(call(x)); }}; };
}

void add_layers(Subjects& subjects);
void add_activations_and_losses(Subjects& subjects);
void add_sequences(Subjects& subjects);
void add_functions(Subjects& subjects);
void add_drop_ins(Subjects& subjects);

/// A module of the library whose options stand in its name, as modules_cases.py draws them: "random attention embed=48
/// heads=4 …".
Subject random_subject(const std::string& name);

inline Subject make_subject(const std::string& name) {
  if (name.starts_with("random ")) return random_subject(name);
  static const auto subjects = [] {
    Subjects all;
    add_layers(all);
    add_activations_and_losses(all);
    add_sequences(all);
    add_functions(all);
    add_drop_ins(all);
    return all;
  }();
  const auto found = subjects.find(name);
  if (found == subjects.end()) throw std::invalid_argument("no subject of this name");
  return found->second();
}

}  // namespace ddp::test
