// As tape.c. WGSL leaves powers of negative numbers undefined, so they are defined here.

@group(0) @binding(0) var<storage, read> code: array<i32>;
@group(0) @binding(1) var<storage, read> operands: array<i32>;
@group(0) @binding(2) var<storage, read> given: array<f32>;
@group(0) @binding(3) var<storage, read_write> results: array<f32>;

fn power(x: f32, exponent: f32) -> f32 {
    let whole = floor(exponent) == exponent;
    if (whole && abs(exponent) <= 64.0) {
        var product = 1.0;
        for (var k = 0; k < i32(abs(exponent)); k++) { product *= x; }
        if (exponent < 0.0) { return 1.0 / product; }
        return product;
    }
    let size = pow(abs(x), exponent);
    // (x - x) / (x - x) is NaN.
    if (x < 0.0 && !whole) { return (x - x) / (x - x); }
    if (x < 0.0 && abs(exponent) < 16777216.0 && i32(exponent) % 2 != 0) { return -size; }
    return size;
}

@compute @workgroup_size(1, 1, 1)
fn micrograd_tape() {
    let count = code[0];
    var room = 16;
    while (room < count) { room *= 2; }
    for (var i = 0; i < room; i++) {
        results[i] = given[i];
        results[room + i] = given[2 * room + i];
    }
    for (var i = 0; i < count; i++) {
        let step = 4 + 4 * i;
        if (code[step + 3] != 0) { continue; }
        let a = code[step + 1];
        let b = code[step + 2];
        if (code[step] == 4) {
            var sum = results[operands[a + 2 * b]];
            for (var k = 0; k < b; k++) { sum += results[operands[a + k]] * results[operands[a + b + k]]; }
            results[i] = sum;
            continue;
        }
        let x = results[a];
        var y = x;
        switch (code[step]) {
            case 1: { y = x + results[b]; }
            case 2: { y = x * results[b]; }
            case 3: { y = power(x, given[room + i]); }
            case 5: { if (x < 0.0) { y = 0.0; } }
            case 6: { y = exp(x); }
            case 7: { y = log(x); }
            // Beyond 10, tanh rounds to 1, and the driver's implementation may overflow.
            case 8: { y = tanh(clamp(x, -10.0, 10.0)); }
            case 9: {
                let e = exp(-abs(x));
                y = select(1.0, e, x < 0.0) / (1.0 + e);
            }
            default: {}
        }
        results[i] = y;
    }
    if (code[1] == 0) { return; }
    for (var i = count - 1; i >= 0; i--) {
        let step = 4 + 4 * i;
        let a = code[step + 1];
        let b = code[step + 2];
        let gradient = results[room + i];
        let y = results[i];
        switch (code[step]) {
            case 1: {
                results[room + a] += gradient;
                results[room + b] += gradient;
            }
            case 2: {
                let left = results[a];
                let right = results[b];
                results[room + a] += right * gradient;
                results[room + b] += left * gradient;
            }
            case 3: {
                let exponent = given[room + i];
                if (exponent != 0.0) { results[room + a] += exponent * power(results[a], exponent - 1.0) * gradient; }
            }
            case 4: {
                for (var k = 0; k < b; k++) {
                    let w = operands[a + k];
                    let x = operands[a + b + k];
                    results[room + w] += results[x] * gradient;
                    results[room + x] += results[w] * gradient;
                }
                results[room + operands[a + 2 * b]] += gradient;
            }
            case 5: { if (y > 0.0) { results[room + a] += gradient; } }
            case 6: { results[room + a] += y * gradient; }
            case 7: { results[room + a] += gradient / results[a]; }
            case 8: { results[room + a] += (1.0 - y * y) * gradient; }
            case 9: { results[room + a] += y * (1.0 - y) * gradient; }
            default: {}
        }
    }
}
