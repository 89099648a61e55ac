// GradScaler as a machine for programs: reads one call per line, answers with "ok" and every number that the call may
// have changed, or with the error as Python names it. scaler_test.py has the same machine in Python.
#include <ATen/ops/full.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/optim/optimizers.h>

namespace {

struct Trained {
  at::Tensor weight;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

template <typename Optimizer, typename Options>
Trained trained(at::ScalarType type) {
  at::Tensor weight = at::full({3}, 1.0, at::TensorOptions(type)).requires_grad_();
  return {weight, std::make_unique<Optimizer>(std::vector<at::Tensor>{weight}, Options(0.125))};
}

class Machine {
 public:
  Machine() {
    optimizers_["plain"] = trained<torch::optim::SGD, torch::optim::SGDOptions>(at::kFloat);
    optimizers_["other"] = trained<torch::optim::SGD, torch::optim::SGDOptions>(at::kFloat);
    optimizers_["half"] = trained<torch::optim::SGD, torch::optim::SGDOptions>(at::kHalf);
    optimizers_["fused"] = trained<ddp::optim::SGD, ddp::optim::SGDOptions>(at::kFloat);
  }

  std::string run(std::istream& line) {
    std::string call;
    line >> call;
    std::ostringstream answer;
    answer.precision(17);
    try {
      const std::string numbers = execute(call, line);
      answer << "ok" << numbers;
    } catch (const std::invalid_argument& error) {
      answer << "ValueError " << without_rank(error.what());
    } catch (const std::logic_error& error) {
      answer << "AssertionError " << without_rank(error.what());
    } catch (const std::exception& error) {
      answer << "RuntimeError " << without_rank(error.what());
    }
    return answer.str();
  }

 private:
  // What Python's message lacks; an error that does not begin with it shows.
  static std::string without_rank(const std::string& message) {
    const std::string rank = "rank 0 of 1: ";
    return message.starts_with(rank) ? message.substr(rank.size()) : "no rank: " + message;
  }

  static double number(std::istream& line) {
    std::string word;
    line >> word;
    return std::stod(word);
  }

  static void print(std::ostream& out, double value) {
    if (std::isnan(value)) {
      out << " nan";  // never "-nan"
    } else {
      out << " " << value;
    }
  }

  Trained& named(std::istream& line) {
    std::string name;
    line >> name;
    return optimizers_.at(name);
  }

  static std::string numbers_of(const Trained& trained) {
    std::ostringstream out;
    out.precision(17);
    const auto add = [&](const at::Tensor& tensor) {
      const at::Tensor dense = (tensor.is_sparse() ? tensor.to_dense() : tensor).to(at::kDouble);
      for (int64_t i = 0; i < 3; ++i) print(out, dense[i].item<double>());
    };
    add(trained.weight.detach());
    const at::Tensor& gradient = trained.weight.grad();
    if (!gradient.defined()) return out.str() + " none";
    add(gradient);
    return out.str();
  }

  std::string numbers_of_scaler() const {
    std::ostringstream out;
    out.precision(17);
    const auto state = scaler_->state_dict();
    if (!state) return " disabled";
    for (const double value : {state->scale, state->growth_factor, state->backoff_factor}) print(out, value);
    out << " " << state->growth_interval << " " << state->growth_tracker;
    return out.str();
  }

  std::string execute(const std::string& call, std::istream& line) {
    std::ostringstream out;
    out.precision(17);
    if (call == "new") {
      ddp::GradScalerOptions options{.device = c10::kCPU};
      options.init_scale = number(line);
      options.growth_factor = number(line);
      options.backoff_factor = number(line);
      options.growth_interval = static_cast<int64_t>(number(line));
      options.enabled = number(line) != 0;
      scaler_ = std::make_unique<ddp::GradScaler>(options);
      return numbers_of_scaler();
    }
    if (call == "scale") {
      print(out, scaler_->scale(at::full({}, number(line), at::TensorOptions(at::kFloat))).item<double>());
      return out.str();
    }
    if (call == "scale_many") {
      const std::vector<at::Tensor> values{at::full({}, number(line)), at::full({}, 1.0, at::TensorOptions(at::kHalf))};
      for (const at::Tensor& value : scaler_->scale(values)) {
        print(out, value.item<double>());
        out << (value.scalar_type() == at::kHalf ? "h" : "f");
      }
      return out.str();
    }
    if (call == "gradient" || call == "sparse") {
      Trained& trained = named(line);
      const at::Tensor values = at::tensor({number(line), number(line), number(line)});
      at::Tensor gradient = values.to(trained.weight.scalar_type());
      if (call == "sparse") {
        // The first place twice: its values are added up.
        const at::Tensor places = at::tensor({0, 0, 2}, at::kLong).reshape({1, 3});
        gradient = at::sparse_coo_tensor(places, gradient, {3});
      }
      trained.weight.mutable_grad() = gradient;
      return numbers_of(trained);
    }
    if (call == "clear") {
      Trained& trained = named(line);
      trained.weight.mutable_grad().reset();
      return numbers_of(trained);
    }
    if (call == "unscale" || call == "step" || call == "step_closure") {
      Trained& trained = named(line);
      if (call == "unscale") scaler_->unscale_(*trained.optimizer);
      if (call == "step") scaler_->step(*trained.optimizer);
      if (call == "step_closure") scaler_->step(*trained.optimizer, [] { return at::zeros({}); });
      return numbers_of(trained);
    }
    if (call == "update") scaler_->update();
    if (call == "update_to") scaler_->update(number(line));
    if (call == "update_tensor") scaler_->update(at::full({}, number(line)));
    if (call == "update_vector") scaler_->update(at::full({1}, number(line)));
    if (call == "update_tensor_of_two") scaler_->update(at::zeros({2}));
    if (call == "update_tensor_with_gradient") scaler_->update(at::full({}, number(line)).requires_grad_());
    if (call == "set_growth_factor") scaler_->set_growth_factor(number(line));
    if (call == "set_backoff_factor") scaler_->set_backoff_factor(number(line));
    if (call == "set_growth_interval") scaler_->set_growth_interval(static_cast<int64_t>(number(line)));
    if (call == "remember") remembered_ = scaler_->state_dict();
    if (call == "restore") scaler_->load_state_dict(remembered_);
    if (call == "restore_nothing") scaler_->load_state_dict(std::nullopt);
    if (call == "get") {
      print(out, scaler_->get_scale());
      return out.str() + " " + std::to_string(scaler_->get_growth_tracker()) + (scaler_->is_enabled() ? " on" : " off");
    }
    return numbers_of_scaler();
  }

  std::map<std::string, Trained> optimizers_;
  std::unique_ptr<ddp::GradScaler> scaler_;
  std::optional<ddp::GradScalerState> remembered_;
};

}  // namespace

int main(int /*argc*/, char** /*argv*/) {
  Machine machine;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::cout << machine.run(words) << "\n";
  }
  return 0;
}
