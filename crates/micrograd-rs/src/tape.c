// One work item interprets a tape: numbers in order, then gradients in reverse order. The including source defines
// REAL, GLOBAL and KERNEL, in which the languages differ.
// code: count, whether to compute gradients, 0, 0; then operation, a, b, known for each value.
// given: rows of numbers, exponents, gradients. results: rows of numbers, gradients.

KERNEL micrograd_tape(GLOBAL const int* code, GLOBAL const int* operands, GLOBAL const REAL* given,
                      GLOBAL REAL* results) {
    int count = code[0];
    int room = 16;
    while (room < count) room *= 2;
    GLOBAL REAL* gradients = results + room;
    for (int i = 0; i < room; i++) {
        results[i] = given[i];
        gradients[i] = given[2 * room + i];
    }
    REAL one = 1;
    for (int i = 0; i < count; i++) {
        GLOBAL const int* step = code + 4 + 4 * i;
        if (step[3] != 0) continue;
        int a = step[1], b = step[2];
        REAL x = step[0] == 4 ? one : results[a];
        REAL y = x;
        switch (step[0]) {
            case 1: y = x + results[b]; break;
            case 2: y = x * results[b]; break;
            case 3: y = pow(x, given[room + i]); break;
            case 4: {
                y = results[operands[a + 2 * b]];
                for (int k = 0; k < b; k++) y += results[operands[a + k]] * results[operands[a + b + k]];
                break;
            }
            case 5: y = x < 0 ? 0 * one : x; break;
            case 6: y = exp(x); break;
            case 7: y = log(x); break;
            case 8: y = tanh(x); break;
            case 9: y = x < 0 ? exp(x) / (one + exp(x)) : one / (one + exp(-x)); break;
        }
        results[i] = y;
    }
    if (code[1] == 0) return;
    for (int i = count - 1; i >= 0; i--) {
        GLOBAL const int* step = code + 4 + 4 * i;
        int a = step[1], b = step[2];
        REAL gradient = gradients[i], y = results[i];
        switch (step[0]) {
            case 1: gradients[a] += gradient; gradients[b] += gradient; break;
            case 2: {
                REAL left = results[a], right = results[b];
                gradients[a] += right * gradient;
                gradients[b] += left * gradient;
                break;
            }
            case 3: {
                REAL exponent = given[room + i];
                if (exponent != 0) gradients[a] += exponent * pow(results[a], exponent - one) * gradient;
                break;
            }
            case 4: {
                for (int k = 0; k < b; k++) {
                    int w = operands[a + k], x = operands[a + b + k];
                    gradients[w] += results[x] * gradient;
                    gradients[x] += results[w] * gradient;
                }
                gradients[operands[a + 2 * b]] += gradient;
                break;
            }
            case 5: gradients[a] += (y > 0 ? gradient : 0 * gradient); break;
            case 6: gradients[a] += y * gradient; break;
            case 7: gradients[a] += gradient / results[a]; break;
            case 8: gradients[a] += (one - y * y) * gradient; break;
            case 9: gradients[a] += y * (one - y) * gradient; break;
        }
    }
}
