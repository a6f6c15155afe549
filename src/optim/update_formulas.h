// update_formulas.h - what one update does to one element: the optimizers' arithmetic, once.
//
// A rule is built from the scalars of the step and is then called for each element with references
// to its value w, its slots (in the order of SlotName() in optim/optimizer.h) and its gradient g. A
// new one joins the list at the end.
// The CPU loops (optim/update_loops.cc) and the CUDA kernels use the same rules.
//
// Numbers    Every operation is a float32 IEEE operation in the order written: with contraction
//            off (-ffp-contract=off, nvcc -fmad=false) all instruction sets give the same bits,
//            powf of FtrlPowerRule apart, which is the C library's.
// Padding    An element with w = 0, g = 0 and freshly initialised slots stays at w = 0 for ever,
//            so a sweep may run over the padding between variables.
// Inlining   Forced, and nothing with other inline functions is included (base/host_device.h).

#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace passel {

/// Which of UpdateRules, at the end of this file.
enum class UpdateRule : std::uint32_t {};

/// Everything that the elements of one update share, made by Prepare() (optim/update_kernels.h).
/// Plain values: pass it to a CUDA kernel by value. A field that the rule does not name is 0.
struct StepScalars {
  UpdateRule rule;
  float rate;             ///< learning rate; Adam: with the bias corrections of this step
  float momentum;         ///< Momentum, RMSProp
  float rate_momentum;    ///< Nesterov: rate * momentum
  float one_minus_decay;  ///< RMSProp: 1 - rho; Adam, AdamW: 1 - beta2
  float one_minus_beta1;  ///< Adam, AdamW
  float epsilon;          ///< RMSProp, Adam; AdamW: for the root as it is in this step
  float inverse_rate;     ///< Ftrl: 1 / learning rate
  float power;            ///< Ftrl: -learning_rate_power, so 0 or more
  float l1;               ///< Ftrl
  float twice_l2;         ///< Ftrl
  float twice_shrinkage;  ///< Ftrl
  float rate_decay;       ///< AdamW: learning rate * weight decay
};

namespace formula {

PASSEL_HD float SquareRoot(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}
PASSEL_HD float Power(float x, float y) {
#if defined(__CUDA_ARCH__)
  return powf(x, y);
#else
  return __builtin_powf(x, y);
#endif
}
PASSEL_HD float Absolute(float x) {
#if defined(__CUDA_ARCH__)
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
/// |size| with the sign of `sign`.
PASSEL_HD float WithSign(float size, float sign) {
#if defined(__CUDA_ARCH__)
  return copysignf(size, sign);
#else
  return __builtin_copysignf(size, sign);
#endif
}

}  // namespace formula

/// w -= lr g
struct SgdRule {
  static constexpr int kSlots = 0;
  float rate;

  PASSEL_HD explicit SgdRule(const StepScalars& s) : rate(s.rate) {}
  PASSEL_HD void operator()(float& w, float g) const { w -= rate * g; }
};

/// a = mu a + g;  w -= lr a
struct MomentumRule {
  static constexpr int kSlots = 1;
  float rate, momentum;

  PASSEL_HD explicit MomentumRule(const StepScalars& s) : rate(s.rate), momentum(s.momentum) {}
  PASSEL_HD void operator()(float& w, float& a, float g) const {
    a = a * momentum + g;
    w -= rate * a;
  }
};

/// a = mu a + g;  w -= lr g + lr mu a
struct NesterovRule {
  static constexpr int kSlots = 1;
  float rate, momentum, rate_momentum;

  PASSEL_HD explicit NesterovRule(const StepScalars& s)
      : rate(s.rate), momentum(s.momentum), rate_momentum(s.rate_momentum) {}
  PASSEL_HD void operator()(float& w, float& a, float g) const {
    a = a * momentum + g;
    w -= rate * g + rate_momentum * a;
  }
};

/// a += g^2;  w -= lr g / sqrt(a).  a > 0 from the start, hence no epsilon.
struct AdagradRule {
  static constexpr int kSlots = 1;
  float rate;

  PASSEL_HD explicit AdagradRule(const StepScalars& s) : rate(s.rate) {}
  PASSEL_HD void operator()(float& w, float& a, float g) const {
    a += g * g;
    w -= rate * g / formula::SquareRoot(a);
  }
};

/// ms += (g^2 - ms)(1 - rho);  mom = mu mom + lr g / sqrt(ms + eps);  w -= mom
struct RmsPropRule {
  static constexpr int kSlots = 2;
  float rate, momentum, one_minus_decay, epsilon;

  PASSEL_HD explicit RmsPropRule(const StepScalars& s)
      : rate(s.rate),
        momentum(s.momentum),
        one_minus_decay(s.one_minus_decay),
        epsilon(s.epsilon) {}
  PASSEL_HD void operator()(float& w, float& ms, float& mom, float g) const {
    ms += (g * g - ms) * one_minus_decay;
    mom = mom * momentum + rate * g / formula::SquareRoot(ms + epsilon);
    w -= mom;
  }
};

/// As RmsPropRule, with mg += (g - mg)(1 - rho) and the variance ms - mg^2 in place of ms.
/// Rounding can bring the variance of a steady gradient below 0. TensorFlow then writes NaN into
/// the value; here it counts as 0. (Written so that a NaN, were there one, stays a NaN.)
struct CenteredRmsPropRule {
  static constexpr int kSlots = 3;
  float rate, momentum, one_minus_decay, epsilon;

  PASSEL_HD explicit CenteredRmsPropRule(const StepScalars& s)
      : rate(s.rate),
        momentum(s.momentum),
        one_minus_decay(s.one_minus_decay),
        epsilon(s.epsilon) {}
  PASSEL_HD void operator()(float& w, float& ms, float& mg, float& mom, float g) const {
    ms += (g * g - ms) * one_minus_decay;
    mg += (g - mg) * one_minus_decay;
    const float difference = ms - mg * mg;
    const float variance = difference < 0.0F ? 0.0F : difference;
    mom = mom * momentum + rate * g / formula::SquareRoot(variance + epsilon);
    w -= mom;
  }
};

/// m += (g - m)(1 - beta1);  s += (g^2 - s)(1 - beta2);  w -= alpha m / (sqrt(s) + eps)
/// with alpha = lr sqrt(1 - beta2^t) / (1 - beta1^t) for update t = 1, 2, ...
struct AdamRule {
  static constexpr int kSlots = 2;
  float rate, one_minus_beta1, one_minus_beta2, epsilon;

  PASSEL_HD explicit AdamRule(const StepScalars& s)
      : rate(s.rate),
        one_minus_beta1(s.one_minus_beta1),
        one_minus_beta2(s.one_minus_decay),
        epsilon(s.epsilon) {}
  PASSEL_HD void operator()(float& w, float& m, float& s, float g) const {
    m += (g - m) * one_minus_beta1;
    s += (g * g - s) * one_minus_beta2;
    w -= rate * m / (formula::SquareRoot(s) + epsilon);
  }
};

/// w -= lr decay w, then as AdamRule (Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", arXiv 1711.05101, algorithm 2, with a schedule of 1 and PyTorch's lr decay).
/// Its epsilon is that of the step, so that
///   alpha m / (sqrt(s) + eps sqrt(1 - beta2^t)) = lr m^ / (sqrt(s^) + eps)
/// with m^ = m / (1 - beta1^t) and s^ = s / (1 - beta2^t)
struct AdamWRule {
  static constexpr int kSlots = 2;
  float rate_decay;
  AdamRule adam;

  PASSEL_HD explicit AdamWRule(const StepScalars& s) : rate_decay(s.rate_decay), adam(s) {}
  PASSEL_HD void operator()(float& w, float& m, float& s, float g) const {
    w -= rate_decay * w;
    adam(w, m, s, g);
  }
};

/// With p = -learning_rate_power and n' = n + g^2:
///   z += g + 2 shrinkage w - (n'^p - n^p) w / lr
///   w  = |z| > l1 ? (sign(z) l1 - z) / (n'^p / lr + 2 l2) : 0
///   n  = n'
/// w follows from z and n alone: as in TensorFlow, the first update discards the initial value
/// of an element whose gradient is 0.
template <bool kSquareRoot>
struct FtrlRuleOf {
  static constexpr int kSlots = 2;
  float inverse_rate, power, l1, twice_l2, twice_shrinkage;

  PASSEL_HD explicit FtrlRuleOf(const StepScalars& s)
      : inverse_rate(s.inverse_rate),
        power(s.power),
        l1(s.l1),
        twice_l2(s.twice_l2),
        twice_shrinkage(s.twice_shrinkage) {}
  PASSEL_HD void operator()(float& w, float& n, float& z, float g) const {
    const float sum = n + g * g;
    const float root = Root(sum);
    z += g + twice_shrinkage * w - (root - Root(n)) * inverse_rate * w;
    // The choice is made on the numerator, so that the division is not behind a branch, which
    // would keep the loop scalar. The divisor is above 0, since n is.
    const float numerator = formula::Absolute(z) > l1 ? formula::WithSign(l1, z) - z : 0.0F;
    w = numerator / (root * inverse_rate + twice_l2);
    n = sum;
  }

 private:
  PASSEL_HD float Root(float x) const {
    if constexpr (kSquareRoot) {
      return formula::SquareRoot(x);
    } else {
      return formula::Power(x, power);
    }
  }
};
using FtrlRule = FtrlRuleOf<true>;        ///< learning_rate_power == -0.5
using FtrlPowerRule = FtrlRuleOf<false>;  ///< any other power

namespace formula {
template <typename A, typename B>
inline constexpr bool kSame = false;
template <typename A>
inline constexpr bool kSame<A, A> = true;
}  // namespace formula

/// A choice among rules. Never has a value: it is for its names.
template <typename... Rules>
struct RuleList {
  static constexpr std::uint32_t kSize = sizeof...(Rules);

  template <typename Rule>
  static constexpr UpdateRule Number() {
    static_assert((formula::kSame<Rule, Rules> || ...), "a rule of the list");
    std::uint32_t number = 0;
    static_cast<void>(((formula::kSame<Rule, Rules> || (++number, false)) || ...));
    return static_cast<UpdateRule>(number);
  }

  /// Calls use.operator()<Rule>() with that rule. False if it is none of the list.
  template <typename Use>
  static inline __attribute__((always_inline)) bool With(UpdateRule rule, Use&& use) {
    return ((rule == Number<Rules>() && (use.template operator()<Rules>(), true)) || ...);
  }
};

/// Every rule: loops, kernels and their choice are made for each.
using UpdateRules = RuleList<SgdRule, MomentumRule, NesterovRule, AdagradRule, RmsPropRule,
                             CenteredRmsPropRule, AdamRule, FtrlRule, FtrlPowerRule, AdamWRule>;

}  // namespace passel
